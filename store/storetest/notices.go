package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

func noticeCases() []testCase {
	return []testCase{
		{"Put_IsReadBack", putNotice},
		{"Put_Bounds", putNoticeBounds},
		{"Put_AtMostSoMany", putNoticesMany},
		{"Restart_KeepsNotices", restartNotices},
	}
}

// notices lists the notices, as texts.
func (e *env) notices() string {
	e.Helper()
	found, err := e.Store.Notices(e.ctx)
	e.ok("list", err)
	return noticeText(found)
}

func noticeText(notices map[string][]byte) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(notices)) {
		all = append(all, fmt.Sprintf("%s=%q", name, notices[name]))
	}
	return strings.Join(all, " ")
}

func (e *env) putNotice(name, record string) {
	e.Helper()
	e.ok("put", e.Store.PutNotice(e.ctx, name, []byte(record)))
}

func putNotice(e *env) {
	is(e, "notices at first", e.notices(), "")
	e.putNotice("b", "1")
	e.putNotice("a x", "\x00\xff")
	e.putNotice("b", "2")
	e.putNotice("b", "2")
	e.putNotice("none", "")
	is(e, "notices", e.notices(), `a x="\x00\xff" b="2"`)
	e.putNotice("b", "")
	e.putNotice("b", "")
	is(e, "what is left", e.notices(), `a x="\x00\xff"`)
	found, err := e.Store.Notices(e.ctx)
	e.ok("list", err)
	found["a x"][0] = 1
	is(e, "what the caller has changed", e.notices(), `a x="\x00\xff"`)
}

func putNoticeBounds(e *env) {
	e.putNotice(strings.Repeat("n", bounds.MaxNoticeName), strings.Repeat("r", bounds.MaxNoticeBytes))
	e.fails("no name", e.Store.PutNotice(e.ctx, "", []byte("r")), dispatch.ErrInvalid)
	e.fails("a long name", e.Store.PutNotice(e.ctx, strings.Repeat("n", bounds.MaxNoticeName+1), nil), dispatch.ErrInvalid)
	e.fails("a long record", e.Store.PutNotice(e.ctx, "n", make([]byte, bounds.MaxNoticeBytes+1)), dispatch.ErrInvalid)
}

func putNoticesMany(e *env) {
	for i := range bounds.MaxNotices {
		e.putNotice(fmt.Sprint(i), "r")
	}
	e.fails("one too many", e.Store.PutNotice(e.ctx, "more", []byte("r")), dispatch.ErrInvalid)
	e.putNotice("7", "changed")
	e.putNotice("8", "")
	e.putNotice("more", "r")
}

func restartNotices(e *env) {
	for i := range 5 {
		e.putNotice(fmt.Sprint(i), "r")
	}
	e.putNotice("2", "")
	e.putNotice("3", "changed")
	before := e.notices()
	e.restart()
	is(e, "notices after a restart", e.notices(), before)
	e.putNotice("0", "")
	e.restart()
	is(e, "notices after another one", e.notices(), `1="r" 3="changed" 4="r"`)
}

// genNotice puts, removes or lists notices.
func (m *model) genNotice() step {
	name := fmt.Sprint("n", m.access.IntN(4))
	put := func(record []byte) step {
		return step{
			name: "put notice", text: fmt.Sprintf("%s %q", name, record),
			do: func(i *Instance) (any, error) { return nil, i.Store.PutNotice(m.ctx, name, record) },
		}
	}
	switch m.access.IntN(3) {
	case 0:
		return put(fmt.Append(nil, m.steps))
	case 1:
		return put(nil)
	}
	return step{name: "list notices", do: func(i *Instance) (any, error) { return listNotices(m.ctx, i) }}
}

func listNotices(ctx context.Context, i *Instance) (string, error) {
	found, err := i.Store.Notices(ctx)
	return noticeText(found), err
}
