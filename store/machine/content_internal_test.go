package machine

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waggle-crawl/waggle/dispatch"
)

func TestContent_IsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	s := New(0)
	rapid.Check(t, func(t *rapid.T) {
		want := unpacked{
			url: rapid.String().Draw(t, "url"), key: rapid.StringN(1, -1, -1).Draw(t, "key"), kind: rapid.String().Draw(t, "kind"),
			metadata: rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "metadata"), payload: []byte(rapid.String().Draw(t, "payload")),
			traceparent: rapid.String().Draw(t, "traceparent"),
		}
		if rapid.Bool().Draw(t, "page") && want.url != "" {
			want.key = want.url
		}
		if rapid.Bool().Draw(t, "redirected") {
			want.redirect = dispatch.Redirect{Hops: 2, From: rapid.String().Draw(t, "from"), Due: time.UnixMilli(1).UTC()}
		}
		packed := s.pack(&want)
		got := packed.unpack()
		if got.url != want.url || got.key != want.key || got.kind != want.kind || got.redirect != want.redirect || got.traceparent != want.traceparent ||
			!maps.Equal(got.metadata, want.metadata) || !slices.Equal(got.payload, want.payload) {
			t.Fatalf("%+v is read as %+v", want, got)
		}
		bytes := len(want.url) + len(want.key) + len(want.kind) + len(want.payload) + len(want.redirect.From) + len(want.traceparent)
		for key, value := range want.metadata {
			bytes += len(key) + len(value)
		}
		if packed.bytes() != bytes || !packed.sound() {
			t.Errorf("%+v has %d bytes, want %d; sound: %t", want, packed.bytes(), bytes, packed.sound())
		}
		if len(packed) > 0 && packed[:len(packed)-1].sound() && len(packed) > 1 && want.redirect.Hops == 0 {
			t.Errorf("%q is not found cut off", packed)
		}
	})
}

func TestTaskID_IsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := func(name string) (dispatch.TaskID, *record) {
			identity := dispatch.Identity{Queue: strconv.Itoa(rapid.IntRange(0, 9).Draw(t, name+" queue")), Key: rapid.String().Draw(t, name)}
			id := dispatch.NewTaskID(identity)
			slot, hash, ok := parseID(id)
			r := &record{hash: hash, lane: &lane{slot: slot}}
			if !ok || r.id() != id || int(slot) != id.Slot() {
				t.Fatalf("%s is read as %s", id, r.id())
			}
			return id, r
		}
		a, of := id("a")
		b, other := id("b")
		if of.Before(other) != (a < b) {
			t.Errorf("%s before %s: %t", a, b, of.Before(other))
		}
	})
	id := string(dispatch.NewTaskID(dispatch.Identity{Queue: "q"}))
	for _, forged := range []string{"", "-", "0" + id, id + "a", id[:len(id)-1] + "b", id[:len(id)-1] + "A", "x" + id, id[:len(id)-1] + "\xff"} {
		if _, _, ok := parseID(dispatch.TaskID(forged)); ok && forged != id {
			t.Errorf("%q is read as the id of a task", forged)
		}
	}
}
