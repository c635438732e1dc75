package storetest

import "time"

func (m *model) genLeader() step {
	duty, holder := one(m, "keeper", "other"), one(m, "d1", "d2")
	switch m.rand.IntN(3) {
	case 0:
		return step{name: "resign", text: duty + " " + holder, do: func(i *Instance) (any, error) {
			return i.Store.Campaign(m.ctx, duty, holder, 0)
		}}
	case 1:
		return step{name: "leader", text: duty, do: func(i *Instance) (any, error) { return i.Store.Campaign(m.ctx, duty, "", 0) }}
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
	const ttl = 10 * time.Second
	return step{
		name: "campaign", text: duty + " " + holder,
		do: func(i *Instance) (any, error) { return i.Store.Campaign(m.ctx, duty, holder, ttl) },
		see: func(any) error {
			m.world.lasting = append(m.world.lasting, m.world.now().Add(ttl))
			return nil
		},
	}
}
