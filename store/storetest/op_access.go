package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
	"github.com/waggle-crawl/waggle/dispatch/bounds"
)

// modelBinding is whose a collector id is, as the world knows it.
type modelBinding struct {
	identity string
	until    time.Time
}

// genAccess binds or releases a collector id, or writes or reads the audit log.
func (m *model) genAccess() step {
	collector, identity := "c"+strconv.Itoa(m.access.IntN(3)), "token:"+strconv.Itoa(m.access.IntN(2))
	switch m.access.IntN(5) {
	case 0, 1:
		return step{
			name: "bind collector", text: collector + " " + identity,
			do: func(i *Instance) (any, error) {
				return i.Store.BindCollector(m.ctx, collector, identity, dispatch.BindingTTL)
			},
			see: func(answer any) error { return m.world.bound(collector, identity, as[string](answer)) },
		}
	case 2:
		return step{
			name: "release collector", text: collector,
			do:  func(i *Instance) (any, error) { return i.Store.ReleaseCollector(m.ctx, collector) },
			see: func(answer any) error { return m.world.released(collector, as[string](answer)) },
		}
	case 3:
		entry := dispatch.AuditEntry{By: identity, Target: strconv.Itoa(m.steps)}
		return step{
			name: "append audit", text: identity,
			do: func(i *Instance) (any, error) { return nil, i.Store.AppendAudit(m.ctx, entry) },
			see: func(any) error {
				m.world.audited(entry)
				return nil
			},
		}
	}
	by, limit := identity, 1+m.access.IntN(20)
	if limit%2 == 0 {
		by = ""
	}
	return step{
		name: "list audit", text: fmt.Sprintf("%q %d", by, limit),
		do: func(i *Instance) (any, error) {
			entries, _, err := i.Store.AuditEntries(m.ctx, by, "", limit)
			for n := range entries {
				entries[n].ID = "" // each store has its own
			}
			return entries, err
		},
		see: func(answer any) error { return m.world.auditListed(by, limit, as[[]dispatch.AuditEntry](answer)) },
	}
}

// owner is whose a collector id is; "" = nobody's. It is not sure of a binding that had ended before the clock was stepped
// back: a store may have removed it.
func (w *world) owner(collector string) (identity string, sure bool) {
	b := w.bindings[collector]
	if !b.until.After(w.now()) {
		return "", true
	}
	return b.identity, b.until.After(w.highest)
}

// bound checks and notes the answer to a bind.
func (w *world) bound(collector, identity, got string) error {
	want, sure := w.owner(collector)
	free := want == "" || !sure && got == identity
	if free {
		want = identity
	}
	if got != want {
		return broken("collector %s belongs to %q after %s asked for it, want %q", collector, got, identity, want)
	}
	if got != identity {
		w.count("bind of another's collector")
		return nil
	}
	until := w.now().Add(dispatch.BindingTTL)
	if free || !until.Before(w.bindings[collector].until.Add(dispatch.BindingStep)) {
		w.bindings[collector] = modelBinding{identity, until}
	}
	return nil
}

// released checks and notes the answer to a release.
func (w *world) released(collector, got string) error {
	if want, sure := w.owner(collector); got != want && (sure || got != "") {
		return broken("collector %s belonged to %q when it was released, want %q", collector, got, want)
	}
	delete(w.bindings, collector)
	return nil
}

// audited notes an entry of the audit log.
func (w *world) audited(entry dispatch.AuditEntry) {
	entry.Time = w.now()
	if n := len(w.audit); n > 0 && w.audit[n-1].Time.After(entry.Time) {
		entry.Time = w.audit[n-1].Time
	}
	w.audit = append(w.audit, entry)
}

// auditListed checks the newest page of the audit log.
func (w *world) auditListed(by string, limit int, got []dispatch.AuditEntry) error {
	var want []dispatch.AuditEntry
	looked := w.audit[max(0, len(w.audit)-bounds.MaxLooks):]
	for _, entry := range slices.Backward(looked) {
		if (by == "" || entry.By == by) && len(want) < limit {
			want = append(want, entry)
		}
	}
	if !slices.Equal(got, want) {
		return broken("the audit log of %q has the newest entries %v, want %v", by, got, want)
	}
	return nil
}
