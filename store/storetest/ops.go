package storetest

// pick chooses the next operation.
func (m *model) pick() step {
	if len(m.queued) > 0 {
		next := m.queued[0]
		m.queued = m.queued[1:]
		return next
	}
	if m.back > 0 {
		d := m.back
		m.back = 0
		return m.stepBack(d)
	}
	if m.chance(18) {
		return m.genAdvance()
	}
	total := 0
	for _, g := range generators() {
		total += g.weight
	}
	n := m.rand.IntN(total)
	for _, g := range generators() {
		if n -= g.weight; n < 0 {
			return g.make(m)
		}
	}
	return m.genAdvance()
}

// generator makes random operations of one kind.
type generator struct {
	weight int
	make   func(m *model) step
}

func generators() []generator {
	return []generator{
		{220, (*model).genSubmit},
		{260, (*model).genClaim},
		{100, (*model).genRenew},
		{170, (*model).genApply},
		{70, (*model).genSucceed},
		{60, (*model).genSweep},
		{30, (*model).genPoll},
		{20, (*model).genBeats},
		{40, (*model).genGiveBack},
		{5, (*model).genNewSession},
		{15, (*model).genCancel},
		{8, (*model).genDeleteLock},
		{6, (*model).genSetLock},
		{3, (*model).genDeleteRecord},
		{25, (*model).genPush},
		{1, (*model).genDeleteSource},
		{12, (*model).genSourceRecord},
		{14, (*model).genRule},
		{16, (*model).genQueueHold},
		{6, (*model).genHold},
		{10, (*model).genClockBack},
		{10, (*model).genReadTasks},
		{6, (*model).genReadQueue},
		{6, (*model).genList},
		{3, (*model).genStats},
		{6, (*model).genLeader},
		{1, (*model).genForget},
	}
}

// chance is true in percent of the calls.
func (m *model) chance(percent int) bool { return m.rand.IntN(100) < percent }

// one chooses one of the values.
func one[T any](m *model, values ...T) T { return values[m.rand.IntN(len(values))] }
