package storetest

import (
	"time"
)

func (m *model) genLeader() step {
	duty, holder := one(m, "keeper", "other"), one(m, "d1", "d2")
	l := m.world.leaders[duty]
	free := l.holder == "" || !l.until.After(m.world.now())
	switch m.rand.IntN(3) {
	case 0:
		return step{
			name: "resign", text: duty + " " + holder,
			do: func(i *Instance) (any, error) { return i.Store.Campaign(m.ctx, duty, holder, 0) },
			see: func(answer any) error {
				want := ""
				if l.holder == holder {
					delete(m.world.leaders, duty)
				} else if !free {
					want = l.holder
				}
				if got := as[string](answer); got != want {
					return broken("the leader of %s after %s resigned is %q, want %q", duty, holder, got, want)
				}
				return nil
			},
		}
	case 1:
		return step{
			name: "leader", text: duty,
			do: func(i *Instance) (any, error) { return i.Store.Campaign(m.ctx, duty, "", 0) },
			see: func(answer any) error {
				want := l.holder
				if free {
					want = ""
				}
				if got := as[string](answer); got != want {
					return broken("the leader of %s is %q, want %q", duty, got, want)
				}
				return nil
			},
		}
	}
	campaign := m.campaignStep(duty, holder)
	if !m.chance(30) {
		return campaign
	}
	return m.followed(campaign, func() []step {
		return []step{m.stepBack(20 * time.Millisecond), m.campaignStep(duty, one(m, "d1", "d2"))}
	})
}

func (m *model) campaignStep(duty, holder string) step {
	return step{
		name: "campaign", text: duty + " " + holder,
		do: func(i *Instance) (any, error) { return i.Store.Campaign(m.ctx, duty, holder, 10*time.Second) },
		see: func(answer any) error {
			l := m.world.leaders[duty]
			want := l.holder == "" || !l.until.After(m.world.now()) || l.holder == holder
			leader := l.holder
			if want {
				leader = holder
			}
			if got := as[string](answer); got != leader {
				return broken("the leader of %s after %s campaigned is %q, want %q", duty, holder, got, leader)
			}
			switch longest := m.world.now().Add(10 * time.Second); {
			case want:
				m.world.leaders[duty] = leadership{holder, longest}
			case l.until.After(longest):
				m.world.count("leadership cut after a step back")
				m.world.leaders[duty] = leadership{l.holder, longest}
			}
			return nil
		},
	}
}
