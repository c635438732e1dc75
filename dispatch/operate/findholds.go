package operate

import (
	"context"
	"fmt"
	"slices"

	"github.com/waggle-crawl/waggle/dispatch"
)

func (l *look) takeHold(h dispatch.Hold) {
	switch {
	case h.Name == dispatch.HoldWaggle:
		l.blocked = append(l.blocked, &h)
	case h.Target.Source == "": // those on sources are seen with the sources
		l.holds = append(l.holds, &h)
	}
}

// findBlocked finds the hosts that Waggle blocked after failures. The one that is blocked longest comes first.
func (l *look) findBlocked(ctx context.Context) {
	if len(l.blocked) == 0 {
		return
	}
	slices.SortStableFunc(l.blocked, func(a, b *dispatch.Hold) int { return b.Until.Compare(a.Until) })
	f := Finding{Kind: findBlocked, Since: l.blocked[0].Created, Count: len(l.blocked), Worst: l.blocked[0]}
	for _, h := range l.blocked {
		f.Names = append(f.Names, h.Target.Queue)
	}
	f.Next = "waggle queue get " + f.Names[0]
	if queue, err := l.FindQueue(ctx, f.Names[0]); err == nil {
		f.Worst = queue
	}
	l.add(f)
}

func (l *look) findHolds() {
	holds := l.holds
	if len(holds) > shownHolds {
		f := Finding{Kind: findHeld, Next: "waggle hold list"}
		for _, h := range holds {
			if !h.Target.Everything {
				f.Count++
				f.Names = append(f.Names, holdName(h))
			}
		}
		l.add(f)
		holds = slices.DeleteFunc(holds, func(h *dispatch.Hold) bool { return !h.Target.Everything })
	}
	for _, h := range holds {
		l.add(Finding{Kind: findHeld, Since: h.Created, Names: []string{holdName(h)}, Next: "waggle hold list", Message: l.heldText(h), Worst: h})
	}
}

// heldText counts what a hold on collectors stops; empty for other holds.
func (l *look) heldText(h *dispatch.Hold) string {
	if h.Target.Collector == "" && len(h.Target.Labels) == 0 {
		return ""
	}
	held, leases := 0, int64(0)
	for i := range l.collectors {
		v := &l.collectors[i]
		if !v.Info.Ended && !v.Gone(l.now) && !v.Info.Stopping && slices.ContainsFunc(v.Holds, func(o *dispatch.Hold) bool { return o.Key() == h.Key() }) {
			held, leases = held+1, leases+v.Held
		}
	}
	return fmt.Sprintf("%d active, %s", held, counted(leases, "lease"))
}

// holdName is the target of a hold, and its name unless that is the default.
func holdName(h *dispatch.Hold) string {
	if h.Name == dispatch.HoldDefault {
		return h.Target.String()
	}
	return h.Target.String() + " " + h.Name
}
