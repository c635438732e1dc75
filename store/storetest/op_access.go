package storetest

import (
	"fmt"
	"strconv"

	"github.com/waggle-crawl/waggle/dispatch"
)

// genAccess binds or releases a collector id, or writes or reads the audit log or notices.
func (m *model) genAccess() step {
	collector, identity := "c"+strconv.Itoa(m.access.IntN(3)), "token:"+strconv.Itoa(m.access.IntN(2))
	switch m.access.IntN(7) {
	case 0, 1:
		return step{
			name: "bind collector", text: collector + " " + identity,
			do: func(i *Instance) (any, error) {
				return i.Store.BindCollector(m.ctx, collector, identity, dispatch.BindingTTL)
			},
			see: func(answer any) error {
				if as[string](answer) != identity {
					m.world.count("bind of another's collector")
				}
				return nil
			},
		}
	case 2:
		return step{
			name: "release collector", text: collector,
			do: func(i *Instance) (any, error) { return i.Store.ReleaseCollector(m.ctx, collector) },
		}
	case 3:
		entry := dispatch.AuditEntry{By: identity, Target: strconv.Itoa(m.steps)}
		return step{
			name: "append audit", text: identity,
			do: func(i *Instance) (any, error) { return nil, i.Store.AppendAudit(m.ctx, entry) },
		}
	}
	if m.access.IntN(2) == 0 {
		return m.genNotice()
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
	}
}
