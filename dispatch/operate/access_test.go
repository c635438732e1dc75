package operate_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
	"github.com/waggle-crawl/waggle/dispatch/dispatchtest"
)

// Texts that are too long for an entry are cut, between two characters.
func TestOperator_Audit(t *testing.T) {
	t.Parallel()
	inWorld(t, dispatchtest.Setup{}, func(t *testing.T, w *world) {
		long := strings.Repeat("é", bounds.MaxAuditText)
		for _, entry := range []dispatch.AuditEntry{
			{By: "token:ada", Said: "ada", From: "192.0.2.1", Method: "UpdateSource", Target: "news", Before: "a", After: "b", Reason: "c"},
			{By: long, Said: long, From: long, Method: long, Target: long, Before: long, After: long[:bounds.MaxAuditText], Reason: "a\xffb"},
		} {
			if err := w.Audit(t.Context(), entry); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		got, next, err := w.AuditEntries(t.Context(), "", "", 10)
		if err != nil || next != "" || len(got) != 2 {
			t.Fatalf("got %d entries, next %q, %v", len(got), next, err)
		}
		cut, short := got[0], got[1]
		if short.By != "token:ada" || short.Said != "ada" || short.From != "192.0.2.1" || short.Method != "UpdateSource" || short.Target != "news" ||
			short.Before != "a" || short.After != "b" || short.Reason != "c" || cut.Time.Sub(short.Time) != time.Second {
			t.Errorf("got %+v", short)
		}
		if cut.After != long[:bounds.MaxAuditText] || cut.Reason != "a\uFFFDb" {
			t.Errorf("after %q, reason %q", cut.After, cut.Reason)
		}
		for text, most := range map[string]int{
			cut.By: bounds.MaxIdentityLength, cut.Said: bounds.MaxMessageLength, cut.Target: bounds.MaxMessageLength, cut.Before: bounds.MaxAuditText,
		} {
			if len(text) > most || len(text) < most-1 || !utf8.ValidString(text) || !strings.HasSuffix(text, "é...") {
				t.Errorf("%q is cut to %d bytes, want at most %d", text, len(text), most)
			}
		}
		w.Stores[0].Inject(dispatchtest.Fail(dispatch.ErrStoreFull, dispatchtest.Calls("AppendAudit", "AuditEntries")))
		if err := w.Audit(t.Context(), dispatch.AuditEntry{}); !errors.Is(err, dispatch.ErrStoreFull) {
			t.Errorf("append: %v", err)
		}
		if _, _, err := w.AuditEntries(t.Context(), "", "", 10); !errors.Is(err, dispatch.ErrStoreFull) {
			t.Errorf("list: %v", err)
		}
	})
}
