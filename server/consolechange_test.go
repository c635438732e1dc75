package server_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
	"github.com/waggle-crawl/waggle/server/console"
)

// changer is a browser of somebody who has signed in.
type changer struct {
	bed   *bed
	token string
}

// ask gets a page, or posts a form to it.
func (c changer) ask(t *testing.T, page string, form url.Values, header ...string) (*http.Response, string) {
	t.Helper()
	method, body := http.MethodGet, io.Reader(nil)
	if form != nil {
		method, body, header = http.MethodPost, strings.NewReader(form.Encode()), append([]string{"Content-Type", "application/x-www-form-urlencoded"}, header...)
	}
	return c.send(t, method, page, body, header...)
}

func (c changer) send(t *testing.T, method, page string, body io.Reader, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+c.bed.http.Addr().String()+"/"+page, body)
	if err != nil {
		t.Fatal(err)
	}
	req.AddCookie(&http.Cookie{Name: "waggle-session", Value: base64.RawURLEncoding.EncodeToString([]byte("wgl_" + c.token))})
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req) // the leak check counts idle connections
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// changes is a bed with a policy and sources of two prefixes.
func newChangeBed(t *testing.T) *bed {
	t.Helper()
	b := withPolicyOn(t, accessPolicy(time.Now().Add(time.Hour)), func(t testing.TB, cfg server.Config) *bed {
		cfg.ReadSources = func(in io.Reader, _ string, schedule *pb.Schedule) ([]console.FileEntry, error) {
			text, err := io.ReadAll(in)
			var entries []console.FileEntry
			for i, line := range strings.Fields(string(text)) {
				if line == "bad" {
					entries = append(entries, console.FileEntry{Line: i + 1, Fault: "it is <b>bad</b>"})
					continue
				}
				entries = append(entries, console.FileEntry{Line: i + 1, Spec: &pb.SourceSpec{Id: line, Schedule: schedule, Seeds: []*pb.Seed{{Url: "https://" + line + ".example/"}}}})
			}
			return entries, err
		}
		return newHTTPBed(t, cfg)
	})
	for _, id := range []string{"news.a", "news.b", "blogs.a"} {
		spec := &pb.SourceSpec{Id: id, LeaseDuration: durationpb.New(time.Minute), Labels: map[string]string{"k": "v"}}
		if id == "news.b" {
			spec.Seeds, spec.FirstCrawl = []*pb.Seed{{Url: "https://b.example/"}}, pb.FirstCrawl_FIRST_CRAWL_SPREAD
			spec.Pool, spec.Schedule = "none", &pb.Schedule{Rule: &pb.Schedule_Every{Every: durationpb.New(300 * 24 * time.Hour)}}
		}
		if _, err := b.sources.CreateSource(as(t.Context(), "admin"), &pb.CreateSourceRequest{Spec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// task submits a task of a source.
func (c changer) task(t *testing.T, source, address string) string {
	t.Helper()
	reply, err := c.bed.tasks.SubmitTasks(as(t.Context(), "admin"), &pb.SubmitTasksRequest{Items: []*pb.SubmitItem{{SourceId: source, Url: address}}})
	if err != nil {
		t.Fatal(err)
	}
	return reply.GetResults()[0].GetTaskId()
}

func (c changer) source(t *testing.T, id string) *pb.Source {
	t.Helper()
	got, err := c.bed.sources.GetSource(as(t.Context(), "admin"), &pb.GetSourceRequest{Id: id})
	if err != nil {
		return nil
	}
	return got.GetSource()
}

func (c changer) state(t *testing.T, task string) pb.TaskState {
	t.Helper()
	got, err := c.bed.tasks.GetTask(as(t.Context(), "admin"), &pb.GetTaskRequest{TaskId: task})
	if err != nil {
		t.Fatal(err)
	}
	return got.GetTask().GetState()
}

func (c changer) holds(t *testing.T) string {
	t.Helper()
	got, err := c.bed.holds.ListHolds(as(t.Context(), "admin"), &pb.ListHoldsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(got.GetHolds())
}

func (c changer) rules(t *testing.T) string {
	t.Helper()
	got, err := c.bed.queues.ListQueueRules(as(t.Context(), "admin"), &pb.ListQueueRulesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(fmt.Sprint(got.GetRules())), " ")
}

// changeCase is a change as its form has it.
type changeCase struct {
	form            string
	method, command string
	done            func() bool
}

// changeCases make each change once, in an order in which each has something to do.
func (c changer) changeCases(t *testing.T) []changeCase {
	t.Helper()
	first, second := c.task(t, "news.a", "https://t.example/1"), c.task(t, "news.a", "https://t.example/2")
	collect := as(t.Context(), "collector")
	lease := func() bool {
		got, err := c.bed.dispatch.FetchTask(collect, &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", ClientToken: "t", Wait: durationpb.New(10 * time.Second)})
		return err == nil && len(got.GetLeasedTasks()) == 1
	}
	return []changeCase{
		{"do=hold&source=news.a&name=x&until=2h&effect=end_leases", "SetHolds", "waggle hold set --source news.a --until 2h --effect end-leases --name x", func() bool { return strings.Contains(c.holds(t), `name:"x"`) }},
		{"do=lift&source=news.a&name=x", "LiftHolds", "waggle hold lift --source news.a --name x", func() bool { return !strings.Contains(c.holds(t), `name:"x"`) }},
		{"do=hold&everything=1", "SetHolds", "waggle hold set --everything", func() bool { return strings.Contains(c.holds(t), "everything:true") }},
		{"do=lift&everything=1", "LiftHolds", "waggle hold lift --everything", func() bool { return !strings.Contains(c.holds(t), "everything") }},
		{"do=hold&pool=p&queue=q.example&collector=c9", "SetHolds", "waggle hold set --pool p --queue q.example --collector c9", func() bool {
			all := c.holds(t)
			return strings.Contains(all, `pool:"p"`) && strings.Contains(all, `queue:"q.example"`) && strings.Contains(all, `collector_id:"c9"`)
		}},
		{"do=hold&matching=sources&prefix=news.", "SetHolds", "waggle hold set --source-prefix news. --yes", func() bool { return strings.Count(c.holds(t), "source_id:") == 2 }},
		{"do=lift&matching=sources&prefix=news.", "LiftHolds", "waggle hold lift --source-prefix news. --yes", func() bool { return strings.Count(c.holds(t), "source_id:") == 0 }},
		{"do=trigger&source=news.b", "TriggerSources", "waggle source trigger news.b", func() bool {
			return time.Until(c.source(t, "news.b").GetStatus().GetNextDueTime().AsTime()) < time.Minute
		}},
		{"do=cancel&task=" + first, "CancelTasks", "waggle task cancel " + first, func() bool { return c.state(t, first) == pb.TaskState_TASK_STATE_CANCELED }},
		{"do=retry&task=" + first, "RetryTasks", "waggle task retry " + first, func() bool { return c.state(t, first) != pb.TaskState_TASK_STATE_CANCELED }},
		{"do=cancel&matching=tasks&source=news.a&state=ready", "CancelTasks", "waggle task cancel --source news.a --state ready --yes", func() bool {
			return c.state(t, first) == pb.TaskState_TASK_STATE_CANCELED && c.state(t, second) == pb.TaskState_TASK_STATE_CANCELED
		}},
		{"do=retry&task=" + first, "RetryTasks", "", lease},
		{"do=revoke&task=" + first, "RevokeLeases", "waggle lease revoke " + first, func() bool { return c.state(t, first) != pb.TaskState_TASK_STATE_LEASED }},
		{"do=release&collector=c1", "ReleaseCollector", "waggle auth release c1", func() bool { return true }},
		{"do=rule&pattern=r.example&min-delay=2s&max-in-flight=3&max-block=2h&delay-factor=1.5", "SetQueueRule", "waggle queue rule set r.example --replace --min-delay 2s --max-in-flight 3", func() bool {
			all := c.rules(t)
			return strings.Contains(all, "min_delay:{seconds:2}") && strings.Contains(all, "max_in_flight:3") && strings.Contains(all, "max_block:{seconds:7200}") && strings.Contains(all, "delay_factor:1.5")
		}},
		{"do=rule&pattern=r.example&min-delay=5s", "SetQueueRule", "", func() bool {
			all := c.rules(t) // what the form does not have stays
			return strings.Contains(all, "min_delay:{seconds:5}") && strings.Contains(all, "max_in_flight:3")
		}},
		{"do=unrule&pattern=r.example", "DeleteQueueRule", "waggle queue rule delete r.example", func() bool { return !strings.Contains(c.rules(t), "r.example") }},
		{"do=edit&source=news.a&schedule=10m..7d&pool=p&priority=7&labels=a%3Db%0D%0Ac%3Dd&display_name=News&quiet_after=3d", "UpdateSource", "waggle source update news.a --display-name News --adaptive 10m..7d --pool p --priority 7 --set-label 'a=b' --set-label 'c=d' --quiet-after 3d", func() bool {
			spec := c.source(t, "news.a").GetSpec()
			return spec.GetDisplayName() == "News" && spec.GetPool() == "p" && spec.GetPriority() == 7 && len(spec.GetLabels()) == 2 && spec.GetLabels()["c"] == "d" &&
				spec.GetSchedule().GetAdaptive().GetMaxInterval().AsDuration() == 7*24*time.Hour && spec.GetQuietAfter().AsDuration() == 72*time.Hour
		}},
		{"do=edit&source=news.a&schedule=&labels=", "UpdateSource", "waggle source update news.a --unset schedule --unset labels", func() bool {
			spec := c.source(t, "news.a").GetSpec()
			return spec.GetSchedule() == nil && len(spec.GetLabels()) == 0 && spec.GetDisplayName() == "News"
		}},
		{"do=add&url=https%3A%2F%2Fwww.example.com%2Ffeed.xml&schedule=30m&pool=p", "CreateSource", "waggle source create www.example.com_feed.xml --seed https://www.example.com/feed.xml --every 30m --pool p", func() bool {
			spec := c.source(t, "www.example.com_feed.xml").GetSpec()
			return spec.GetSeeds()[0].GetUrl() == "https://www.example.com/feed.xml" && spec.GetSchedule().GetEvery().AsDuration() == 30*time.Minute && spec.GetPool() == "p"
		}},
		{"do=cancel&matching=tasks&source=www.example.com_feed.xml", "CancelTasks", "", func() bool { return true }},
		{"do=delete&source=news.b&source=blogs.a", "DeleteSources", "waggle source delete news.b blogs.a", func() bool { return c.source(t, "news.b") == nil && c.source(t, "blogs.a") == nil }},
		{"do=delete&matching=sources&prefix=news.", "DeleteSources", "waggle source delete --prefix news. --yes", func() bool { return c.source(t, "news.a") == nil }},
	}
}

// Each change is shown first, asks why, does what it says, and is in the audit with the identity and the reason.
func TestConsole_changes(t *testing.T) {
	t.Parallel()
	c := changer{newChangeBed(t), "admin"}
	for _, test := range c.changeCases(t) {
		form, err := url.ParseQuery(test.form)
		if err != nil {
			t.Fatal(err)
		}
		n := len(audit(t, c.bed))
		resp, text := c.ask(t, "change", form)
		if resp.StatusCode != http.StatusOK || !strings.Contains(text, "What would happen") || !strings.Contains(html.UnescapeString(text), test.command) {
			t.Errorf("%s: %d, %s", test.form, resp.StatusCode, text)
		}
		form.Set("sure", "1")
		if resp, text = c.ask(t, "change", form); resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, "The reason is missing") {
			t.Errorf("%s without a reason: %d, %s", test.form, resp.StatusCode, text)
		}
		if len(audit(t, c.bed)) != n {
			t.Errorf("%s: it is done before it was asked for", test.form)
		}
		form.Set("reason", "they <asked>")
		if resp, text = c.ask(t, "change", form); resp.StatusCode != http.StatusSeeOther {
			t.Errorf("%s: %d, %s", test.form, resp.StatusCode, text)
			continue
		}
		if !test.done() {
			t.Errorf("%s: it is not done", test.form)
		}
		listed, err := c.bed.admin.ListAuditEntries(as(t.Context(), "admin"), &pb.ListAuditEntriesRequest{PageSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		if e := listed.GetEntries()[0]; e.GetMethod() != test.method || e.GetBy() != "token:admin" || e.GetReason() != "they <asked>" {
			t.Errorf("%s: the audit has %v", test.form, e)
		}
	}
}

// A viewer sees no way to change anything, and nothing that he sends changes anything.
func TestConsole_viewerChangesNothing(t *testing.T) {
	t.Parallel()
	b := newChangeBed(t)
	admin, c := changer{b, "admin"}, changer{b, "whole-viewer"}
	cases := admin.changeCases(t)
	task := admin.task(t, "blogs.a", "https://t.example/3")
	for _, set := range []string{"do=hold&source=blogs.a", "do=rule&pattern=v.example&min-delay=2s"} {
		form, _ := url.ParseQuery(set + "&sure=1&reason=r") // it is well formed
		if resp, text := admin.ask(t, "change", form); resp.StatusCode != http.StatusSeeOther {
			t.Fatal(text)
		}
	}
	pages := []string{"", "sources", "source?id=news.a", "source?id=blogs.a", "queues", "queue?name=t.example", "tasks?source=news.a", "task?id=" + task, "collectors", "holds", "rules"}
	n := len(audit(t, b))
	for _, page := range pages {
		for _, who := range []changer{admin, c} {
			resp, text := who.ask(t, page, nil)
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s of %s: %d, %s", page, who.token, resp.StatusCode, text)
			}
			buttons := strings.Contains(text, "change?do=") || strings.Contains(text, `name="do"`) || strings.Contains(text, `type="checkbox" form="pick"`)
			if want := who == admin && page != "" && page != "queues" && page != "collectors"; buttons != want {
				t.Errorf("%s of %s: buttons %v", page, who.token, buttons)
			}
		}
	}
	for _, test := range cases {
		form, _ := url.ParseQuery(test.form) // as above
		for _, sure := range []bool{false, true} {
			if sure {
				form.Set("sure", "1")
				form.Set("reason", "r")
			}
			// What is not there is not there for who may read.
			if resp, text := c.ask(t, "change", form); resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s, %v: %d, %s", test.form, sure, resp.StatusCode, text)
			}
		}
		if resp, _ := c.ask(t, "change?"+test.form, nil); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", test.form, resp.StatusCode)
		}
	}
	for _, page := range []string{"add", "import", "change?do=add"} {
		if resp, _ := c.ask(t, page, nil); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", page, resp.StatusCode)
		}
	}
	if len(audit(t, b)) != n {
		t.Error("something was changed")
	}
}

// An operator of some sources changes those only.
func TestConsole_narrowedOperator(t *testing.T) {
	t.Parallel()
	b := newChangeBed(t)
	admin, c := changer{b, "admin"}, changer{b, "operator"}
	task := admin.task(t, "blogs.a", "https://t.example/4")
	n := len(audit(t, b))
	for _, change := range []string{
		"do=hold&source=blogs.a", "do=hold&everything=1", "do=hold&queue=t.example", "do=trigger&source=blogs.a", "do=delete&source=blogs.a", "do=delete&source=news.a&source=blogs.a",
		"do=edit&source=blogs.a&pool=p", "do=cancel&task=" + task, "do=rule&pattern=t.example&min-delay=2s", "do=add&url=https%3A%2F%2Fother.example%2F", "do=delete&matching=sources",
	} {
		form, _ := url.ParseQuery(change + "&sure=1&reason=r") // it is well formed
		if resp, text := c.ask(t, "change", form); resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d, %s", change, resp.StatusCode, text)
		}
	}
	if len(audit(t, b)) != n || admin.source(t, "blogs.a") == nil || admin.source(t, "news.a") == nil {
		t.Error("something was changed")
	}
	form, _ := url.ParseQuery("do=edit&source=news.a&pool=p&sure=1&reason=r") // likewise
	if resp, text := c.ask(t, "change", form); resp.StatusCode != http.StatusSeeOther || admin.source(t, "news.a").GetSpec().GetPool() != "p" {
		t.Errorf("its own: %d, %s", resp.StatusCode, text)
	}
}

// A page of another origin changes nothing.
func TestConsole_otherOrigin(t *testing.T) {
	t.Parallel()
	c := changer{newChangeBed(t), "admin"}
	form := url.Values{"do": {"delete"}, "source": {"news.a"}, "sure": {"1"}, "reason": {"r"}}
	for _, header := range [][]string{{"Origin", "http://evil.example"}, {"Origin", "null"}, {"Sec-Fetch-Site", "cross-site"}} {
		for _, page := range []string{"change", "add", "import"} {
			if resp, text := c.ask(t, page, form, header...); resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s, %v: %d, %s", page, header, resp.StatusCode, text)
			}
		}
	}
	if c.source(t, "news.a") == nil {
		t.Error("it is deleted")
	}
}

// Who changes what another one has changed since is refused, and sees what he wanted.
func TestConsole_staleForm(t *testing.T) {
	t.Parallel()
	c := changer{newChangeBed(t), "admin"}
	ctx := as(t.Context(), "whole")
	etag := func(text string) string {
		_, after, _ := strings.Cut(text, `name="etag" value="`)
		value, _, _ := strings.Cut(after, `"`)
		return html.UnescapeString(value)
	}
	for page, change := range map[string]func(ctx context.Context) error{
		"do=edit&source=news.a": func(ctx context.Context) error {
			_, err := c.bed.sources.UpdateSource(ctx, &pb.UpdateSourceRequest{Spec: &pb.SourceSpec{Id: "news.a", DisplayName: "theirs"}})
			return err
		},
		"do=rule&pattern=s.example": func(ctx context.Context) error {
			_, err := c.bed.queues.SetQueueRule(ctx, &pb.SetQueueRuleRequest{Rule: &pb.QueueRule{Pattern: "s.example", MaxInFlight: proto.Int32(9)}})
			return err
		},
	} {
		_, text := c.ask(t, "change?"+page, nil)
		if etag(text) == "" {
			t.Fatal(text)
		}
		if err := change(ctx); err != nil {
			t.Fatal(err)
		}
		form, _ := url.ParseQuery(page + "&sure=1&reason=r&min-delay=3s&display_name=mine") // it is well formed
		form.Set("etag", etag(text))
		if resp, text := c.ask(t, "change", form); resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, `role="alert"`) || !strings.Contains(text, "mine") && !strings.Contains(text, "3s") {
			t.Errorf("%s: %d, %s", page, resp.StatusCode, text)
		}
	}
	if name := c.source(t, "news.a").GetSpec().GetDisplayName(); name != "theirs" || !strings.Contains(c.rules(t), "max_in_flight:9") {
		t.Errorf("%q, %s", name, c.rules(t))
	}
}

// What people and the web write stays text.
func TestConsole_hostileForm(t *testing.T) {
	t.Parallel()
	c := changer{newChangeBed(t), "admin"}
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(1)>`
	for _, form := range []url.Values{
		{"do": {"hold"}, "source": {"news.a"}, "name": {evil}, "until": {evil}, evil: {evil}, "to": {evil}},
		{"do": {"hold"}, "source": {evil}}, {"do": {"edit"}, "source": {"news.a"}, "display_name": {evil}, "schedule": {evil}, "labels": {evil}},
		{"do": {"edit"}, "source": {"news.a"}, "display_name": {evil}, "reason": {evil}, "sure": {"1"}}, {"do": {evil}},
		{"do": {"add"}, "url": {evil}, "id": {evil}, "pool": {evil}}, {"do": {"rule"}, "pattern": {evil}, "min-delay": {evil}}, {"do": {"cancel"}, "task": {evil}},
		{"do": {"trigger"}, "source": {"news.a"}, "to": {"javascript:alert(1)"}}, {"do": {"trigger"}, "source": {"news.a"}, "to": {"//evil.example"}},
	} {
		_, text := c.ask(t, "change", form)
		if strings.Contains(text, "<script>alert") || strings.Contains(text, "<img") || strings.Contains(text, "javascript:") || strings.Contains(text, `"//evil`) {
			t.Errorf("%v: %s", form, text)
		}
	}
	for _, page := range []string{"source?id=news.a", "sources", "audit", "change?do=edit&source=news.a"} {
		if _, text := c.ask(t, page, nil); strings.Contains(text, "<script>alert") || strings.Contains(text, "<img") || !strings.Contains(text, "&lt;script&gt;") {
			t.Errorf("%s: %s", page, text)
		}
	}
	form := url.Values{"do": {"trigger"}, "source": {"news.a"}, "sure": {"1"}, "reason": {"r"}, "to": {"https://evil.example/"}}
	if resp, _ := c.ask(t, "change", form); resp.Header.Get("Location") != "." {
		t.Errorf("it leads to %q", resp.Header.Get("Location"))
	}
	resp, text := c.ask(t, "sources", nil, "Cookie", "waggle-session="+base64.RawURLEncoding.EncodeToString([]byte("wgl_admin"))+"; waggle-done="+base64.RawURLEncoding.EncodeToString([]byte(evil)))
	if strings.Contains(text, "<script>alert") || !strings.Contains(text, "&lt;script&gt;") || !strings.Contains(resp.Header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("%v: %s", resp.Header, text)
	}
}

// A form that is about nothing, or says what cannot be, is shown again with what is wrong.
func TestConsole_wrongForm(t *testing.T) {
	t.Parallel()
	c := changer{newChangeBed(t), "admin"}
	for form, want := range map[string]string{
		"do=trigger": "Nothing is chosen.", "do=cancel": "Nothing is chosen.", "do=hold": "Nothing is chosen.", "do=cancel&matching=tasks": "Nothing is chosen.",
		"do=hold&source=news.a&until=soon": "no length of time", "do=edit&source=news.a&priority=high": "is no number", "do=edit&source=news.a&labels=x": "is no key=value",
		"do=add&url=nothing": "must begin with http", "do=add&url=https%3A%2F%2Fa.example&id=news.a": "choose another id", "do=rule&pattern=a.example&max-in-flight=x": "is no number",
		"do=unrule&pattern=none.example": "There is no rule",
	} {
		values, _ := url.ParseQuery(form) // it is well formed
		resp, text := c.ask(t, "change", values)
		if resp.StatusCode < 400 || resp.StatusCode >= 500 || !strings.Contains(text, want) || !strings.Contains(text, "<form method=\"post\" action=") {
			t.Errorf("%s: %d, %s", form, resp.StatusCode, text)
		}
	}
	for page, want := range map[string]int{"change?do=none": 404, "change": 404, "change?do=edit&source=none": 404, "change?do=hold&choose=1": 200, "add": 200, "import": 200} {
		if resp, text := c.ask(t, page, nil); resp.StatusCode != want {
			t.Errorf("%s: %d, %s", page, resp.StatusCode, text)
		}
	}
	if resp, _ := c.ask(t, "change", url.Values{"do": {"hold"}, "source": {strings.Repeat("x", 300<<10)}}); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a large form: %d", resp.StatusCode)
	}
	// A hold that says something else is not replaced by accident.
	form, _ := url.ParseQuery("do=hold&source=news.a&sure=1&reason=r") // likewise
	c.ask(t, "change", form)
	form.Set("until", "2h")
	if resp, text := c.ask(t, "change", form); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("%d, %s", resp.StatusCode, text)
	}
	form.Set("replace", "1")
	if resp, text := c.ask(t, "change", form); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("%d, %s", resp.StatusCode, text)
	}
}

// A file shows what is new, known and refused, and adds what is new.
func TestConsole_import(t *testing.T) {
	t.Parallel()
	c := changer{newChangeBed(t), "admin"}
	upload := func(file []byte) (*http.Response, string) {
		var body bytes.Buffer
		parts := multipart.NewWriter(&body)
		part, err := parts.CreateFormFile("file", "feeds.txt")
		if err == nil {
			_, err = part.Write(file)
		}
		if err == nil {
			err = parts.WriteField("schedule", "2h")
		}
		if err == nil {
			err = parts.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return c.send(t, http.MethodPost, "import", &body, "Content-Type", parts.FormDataContentType())
	}
	resp, text := upload([]byte("one two bad news.a"))
	if resp.StatusCode != http.StatusOK || !strings.Contains(text, "New: 2. Known: 1. Refused: 1.") || !strings.Contains(text, "it is &lt;b&gt;bad") || c.source(t, "one") != nil {
		t.Fatalf("%d, %s", resp.StatusCode, text)
	}
	_, after, _ := strings.Cut(text, `name="data" value="`)
	data, _, _ := strings.Cut(after, `"`)
	form := url.Values{"data": {data}, "filename": {"feeds.txt"}, "schedule": {"2h"}, "sure": {"1"}, "reason": {"r"}}
	if resp, text = c.ask(t, "import", form); resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("%d, %s", resp.StatusCode, text)
	}
	if every := c.source(t, "two").GetSpec().GetSchedule().GetEvery().AsDuration(); every != 2*time.Hour || c.source(t, "news.a").GetSpec().GetSchedule() != nil {
		t.Errorf("%v, %v", every, c.source(t, "news.a"))
	}
	for want, file := range map[string][]byte{"too large": bytes.Repeat([]byte("x"), 5<<20+1), "has no sources": []byte(" "), "unpack it first": {0x1f, 0x8b, 8}, "form is too large": bytes.Repeat([]byte("x"), 11<<20)} {
		if resp, text := upload(file); resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s: %d, %.2000s", want, resp.StatusCode, text)
		}
	}
}

// A host that is blocked after failures is asked again when somebody opens its block.
func TestConsole_unblock(t *testing.T) {
	t.Parallel()
	c := changer{newChangeBed(t), "admin"}
	c.task(t, "news.a", "https://down.example/1")
	ctx := as(t.Context(), "collector")
	fetched, err := c.bed.dispatch.FetchTask(ctx, &pb.FetchTaskRequest{CollectorId: "c1", Session: "s1", ClientToken: "t", Wait: durationpb.New(10 * time.Second)})
	if err != nil || len(fetched.GetLeasedTasks()) != 1 {
		t.Fatal(err, fetched)
	}
	leased := fetched.GetLeasedTasks()[0]
	failed := &pb.Failed{Reason: pb.FailureReason_FAILURE_REASON_THROTTLED, HttpStatus: 503}
	if _, err := c.bed.dispatch.ReportTask(ctx, &pb.ReportTaskRequest{CollectorId: "c1", Session: "s1", Reports: []*pb.TaskReport{
		{TaskId: leased.GetTask().GetId(), LeaseToken: leased.GetLease().GetLeaseToken(), Outcome: &pb.Outcome{Result: &pb.Outcome_Failed{Failed: failed}}},
	}}); err != nil {
		t.Fatal(err)
	}
	_, text := c.ask(t, "queue?name=down.example", nil)
	if !strings.Contains(text, "change?do=unblock&amp;queue=down.example") {
		t.Fatal(text)
	}
	form, _ := url.ParseQuery("do=unblock&queue=down.example&sure=1&reason=repaired") // it is well formed
	if resp, text := c.ask(t, "change", form); resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("%d, %s", resp.StatusCode, text)
	}
	if _, text = c.ask(t, "queue?name=down.example", nil); strings.Contains(text, "do=unblock") || !strings.Contains(text, "do=hold") {
		t.Error(text)
	}
}
