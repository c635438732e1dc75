package console

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
)

// action is a change that can be made from the pages. All of them take the same road: a page shows what would happen, with the command that
// does the same, and asks why; the form on it makes the change.
type action struct {
	title  string
	method string // of the API, for who may
	plan   func(v *visit, f form) (*plan, error)
}

// actions are all changes, by their names in addresses.
func actions(uploads bool) map[string]action {
	all := map[string]action{
		"hold":    {title: "Hold", method: pb.HoldService_SetHolds_FullMethodName, plan: (*visit).planHold},
		"lift":    {title: "Lift", method: pb.HoldService_LiftHolds_FullMethodName, plan: (*visit).planLift},
		"unblock": {title: "Unblock", method: pb.HoldService_LiftHolds_FullMethodName, plan: (*visit).planUnblock},
		"trigger": {title: "Trigger", method: pb.SourceService_TriggerSources_FullMethodName, plan: (*visit).planTrigger},
		"delete":  {title: "Delete", method: pb.SourceService_DeleteSources_FullMethodName, plan: (*visit).planDelete},
		"edit":    {title: "Edit", method: pb.SourceService_UpdateSource_FullMethodName, plan: (*visit).planEdit},
		"cancel":  {title: "Cancel", method: pb.TaskService_CancelTasks_FullMethodName, plan: (*visit).planCancel},
		"retry":   {title: "Retry", method: pb.TaskService_RetryTasks_FullMethodName, plan: (*visit).planRetry},
		"revoke":  {title: "Revoke", method: pb.TaskService_RevokeLeases_FullMethodName, plan: (*visit).planRevoke},
		"release": {title: "Release", method: pb.AdminService_ReleaseCollector_FullMethodName, plan: (*visit).planRelease},
		"rule":    {title: "Set a rule", method: pb.QueueService_SetQueueRule_FullMethodName, plan: (*visit).planRule},
		"unrule":  {title: "Delete the rule", method: pb.QueueService_DeleteQueueRule_FullMethodName, plan: (*visit).planUnrule},
		"add":     {title: "Add a source", method: pb.SourceService_CreateSource_FullMethodName, plan: (*visit).planAdd},
	}
	if uploads {
		all["import"] = action{title: "Import sources", method: pb.SourceService_ApplySources_FullMethodName, plan: (*visit).planImport}
	}
	return all
}

// plan is a change as the form has it so far.
type plan struct {
	fields  []field
	note    string // what it does, for people
	command []string
	form    string // the page that its form goes to, if that is another one than "change"
	back    string // the page to go to when it is made, if that is another one than it came from
	fresh   bool   // the form shows what is there: nothing has been changed on it
	// call makes the change, or reports what it would do. nil: something is still missing.
	call func(ctx context.Context, o order) (*outcome, error)
}

// order is how a change is to be made.
type order struct {
	dry    bool // change nothing
	reason string
	token  string // of what is left of a change that one call has no room for
}

// outcome is what a change did, or would do.
type outcome struct {
	Matched, Changed int64
	Names            []string // the first that it changes
	Lines            []string // what else is to be known
	next             string   // the token of what is left; empty: nothing is
}

// field is an input of a form.
type field struct {
	Name, Label, Kind, Value, Hint string // Kind: text, area, check, select or file
	Options                        []option
	On                             bool
	Required                       bool
}

// form has the values of a request.
type form struct {
	url.Values
	file *multipart.FileHeader // nil: none was sent
}

func (f form) text(name string) string { return strings.TrimSpace(f.Get(name)) }

// all are the values of a name, each once.
func (f form) all(name string) (values []string) {
	for _, value := range f.Values[name] {
		if value = strings.TrimSpace(value); value != "" && !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	return values
}

// hidden are the values that the form carries along: all but those that it asks for.
func (f form) hidden(fields []field) (pairs [][2]string) {
	names := make([]string, 0, len(f.Values))
	for name := range f.Values {
		if name != "sure" && name != "reason" && !slices.ContainsFunc(fields, func(of field) bool { return of.Name == name }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range f.all(name) {
			pairs = append(pairs, [2]string{name, value})
		}
	}
	return pairs
}

const (
	// maxForm is the largest form in bytes: as many ids as one call takes.
	maxForm = 256 << 10
	// mostUnread is how much of a larger one is still received, so that its sender gets to know why it is refused.
	mostUnread = 64 << 20
)

// form reads the form of a request.
func (v *visit) form() (form, error) {
	if v.Method == http.MethodGet {
		return form{Values: v.URL.Query()}, nil
	}
	limit := int64(maxForm)
	if v.URL.Path == importPage {
		limit = maxImportForm
	}
	whole := v.Body
	v.Body = http.MaxBytesReader(nil, whole, limit)
	var err error
	if strings.HasPrefix(v.Header.Get("Content-Type"), "multipart/") {
		err = v.ParseMultipartForm(limit)
	} else {
		err = v.ParseForm()
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		_, _ = io.CopyN(io.Discard, whole, mostUnread) // a browser reads no answer before it has sent all
		return form{}, status.Error(codes.InvalidArgument, v.text.say("The form is too large: at most %s fit.", v.text.bytes(limit)))
	case err != nil:
		return form{}, status.Error(codes.InvalidArgument, v.text.say("The form cannot be read."))
	}
	f := form{Values: v.PostForm}
	if v.MultipartForm != nil {
		if files := v.MultipartForm.File["file"]; len(files) > 0 {
			f.file = files[0]
		}
	}
	return f, nil
}

// upload is the text of the file that was sent.
func (f form) upload() ([]byte, error) {
	in, err := f.file.Open()
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(in)
	return text, errors.Join(err, in.Close())
}

// changeView is the page of a change.
type changeView struct {
	Action, Form, Error, Note, Reason, Back string
	Fields                                  []field
	Hidden                                  [][2]string
	Outcome                                 *outcome // what would happen; nil: it cannot be known yet
	Uploads                                 bool
	Ready                                   bool // it can be made
}

// made leads to a page, which says what was done.
type made struct{ to, text string }

// change is the page of a change, and makes it.
func (c *Console) change(v *visit) (any, error) {
	f, err := v.form()
	if err != nil {
		return nil, err
	}
	return c.changeOf(v, f, f.text("do"))
}

func (c *Console) changeOf(v *visit, f form, do string) (any, error) {
	of, known := c.actions[do]
	if !known {
		return nil, status.Error(codes.NotFound, v.text.say("There is no such change."))
	}
	making := v.Method == http.MethodPost && f.text("sure") != ""
	if !making && !c.cfg.May(v.Context(), of.method) {
		return nil, status.Error(codes.PermissionDenied, v.text.say("You may not make this change."))
	}
	p, err := of.plan(v, f)
	if p == nil {
		return nil, err
	}
	back := cmp.Or(pageTo(f.text("to")), ".")
	var out *outcome
	ready, o := p.call != nil && err == nil, order{dry: !making, reason: f.text("reason"), token: f.text("token")}
	switch {
	case !ready || p.fresh && !making:
	case making && o.reason == "":
		err = status.Error(codes.InvalidArgument, v.text.say("The reason is missing: the audit has it."))
	default:
		out, err = p.call(v.Context(), o)
	}
	switch code := status.Code(err); {
	case code == codes.Unauthenticated || code == codes.PermissionDenied:
		return nil, err
	case making && ready && err == nil:
		text := v.text.say("%s: %s of %s changed.", v.text.say(of.title), v.text.count(out.Changed), v.text.count(out.Matched))
		if out.next == "" {
			return &made{cmp.Or(p.back, back), strings.Join(append([]string{text}, out.Lines...), " ")}, nil
		}
		f.Set("token", out.next)
		f.Set("do", do)
		for _, name := range []string{"sure", "reason"} {
			f.Del(name)
		}
		return &made{"change?" + f.Encode(), text + " " + v.text.say("More is left: go on here.")}, nil
	}
	f.Set("do", do)
	f.Set("to", back)
	shown := &changeView{
		Action: v.text.say(of.title), Form: cmp.Or(p.form, "change"), Note: p.note, Reason: o.reason, Back: back, Fields: p.fields, Hidden: f.hidden(p.fields), Outcome: out,
		Uploads: slices.ContainsFunc(p.fields, func(of field) bool { return of.Kind == "file" }), Ready: p.call != nil,
	}
	page := &view{page: "change", title: of.title, data: shown}
	if err != nil {
		shown.Error, page.code = status.Convert(err).Message(), httpStatus(status.Code(err))
	} else if len(p.command) > 0 && p.call != nil {
		page.command = shell(append(p.command, "--reason", cmp.Or(o.reason, v.text.say("why"))))
	}
	return page, nil
}

// shell is a command as it is typed.
func shell(words []string) string {
	typed := make([]string, len(words))
	for i, word := range words {
		typed[i] = quoted(word)
	}
	return strings.Join(typed, " ")
}

// How long a change goes on that takes more than one call, and how many calls are made to see what it would do.
const (
	changeFor  = 15 * time.Second
	mostDryRun = 10
)

// bulkReply is the answer to a call of a change of many.
type bulkReply interface {
	GetMatched() int32
	GetChanged() int32
	GetNextPageToken() string
}

// bulk makes calls until all is changed, or time is up. take takes what else an answer has.
func bulk[R bulkReply](o order, call func(token string) (R, error), take func(out *outcome, reply R)) (*outcome, error) {
	out, token, began := new(outcome), o.token, time.Now()
	for calls := 1; ; calls++ {
		reply, err := call(token)
		if err != nil {
			return nil, err
		}
		out.Matched += int64(reply.GetMatched())
		out.Changed += int64(reply.GetChanged())
		take(out, reply)
		if token = reply.GetNextPageToken(); token == "" || o.dry && calls == mostDryRun || !o.dry && time.Since(began) > changeFor {
			out.next = token
			return out, nil
		}
	}
}

// More reports whether more matches than was looked at.
func (o *outcome) More() bool { return o.next != "" }

// shownNames is how many names of what a change is about are shown.
const shownNames = 20

// name adds a name of something that is changed.
func (o *outcome) name(names ...string) {
	for _, name := range names {
		if len(o.Names) < shownNames && name != "" {
			o.Names = append(o.Names, name)
		}
	}
}

// act is a button that leads to a change.
type act struct{ Do, Text, Page string }

// acts are the buttons for what the one who asks may change, each the name of an action and what it is about, names and values in turn.
func (v *visit) acts(all ...[]string) (shown []act) {
	for _, one := range all {
		if of, known := v.c.actions[one[0]]; known && v.c.cfg.May(v.Context(), of.method) {
			page, _ := pageAddress("change", append(append([]string{"do"}, one...), "to", v.here())...) // the pairs are ours
			shown = append(shown, act{one[0], of.title, page})
		}
	}
	return shown
}

// actsOn are the buttons for changes of one thing, names and values in turn.
func (v *visit) actsOn(on []string, names ...string) (shown []act) {
	for _, name := range names {
		shown = append(shown, v.acts(append([]string{name}, on...))...)
	}
	return shown
}

// may reports whether the one who asks may make all of these changes.
func (v *visit) may(names ...string) bool {
	for _, name := range names {
		if !v.c.cfg.May(v.Context(), v.c.actions[name].method) {
			return false
		}
	}
	return true
}

// here is the address of the page, relative.
func (v *visit) here() string {
	path := cmp.Or(strings.TrimPrefix(v.URL.Path, "/"), ".")
	if v.URL.RawQuery == "" || v.Method != http.MethodGet {
		return path
	}
	return path + "?" + v.URL.RawQuery
}
