package storetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/waggle-crawl/waggle/dispatch"
)

func bindingCases() []testCase {
	return []testCase{
		{"Bind_FirstIdentityOwns", bindFirst},
		{"Bind_AtOnce_OneOwner", bindAtOnce},
		{"Bind_EndsWithoutUse", bindEnds},
		{"Bind_UseExtends", bindExtends},
		{"Bind_ForAWhile", bindForAWhile},
		{"Bind_ManyThatEnd", bindMany},
		{"Bind_EmptyIsRefused", bindEmpty},
		{"Release_MakesNobodys", releaseBinding},
		{"Restart_KeepsBindings", restartBindings},
	}
}

func (e *env) bind(collector, identity string) string {
	e.Helper()
	owner, err := e.Store.BindCollector(e.ctx, collector, identity, dispatch.BindingTTL)
	e.ok("bind", err)
	return owner
}

func (e *env) release(collector string) string {
	e.Helper()
	owner, err := e.Store.ReleaseCollector(e.ctx, collector)
	e.ok("release", err)
	return owner
}

// restart ends the store and opens it again, if it can be.
func (e *env) restart() {
	e.Helper()
	if e.Restart != nil {
		e.ok("restart", e.Restart())
	}
}

func bindFirst(e *env) {
	is(e, "owner", e.bind("c1", "token:a"), "token:a")
	is(e, "owner for another identity", e.bind("c1", "token:b"), "token:a")
	is(e, "owner for itself", e.bind("c1", "token:a"), "token:a")
	is(e, "owner of another collector", e.bind("c2", "token:b"), "token:b")
}

func bindAtOnce(e *env) {
	owners := make([]string, 20)
	var all sync.WaitGroup
	for i := range owners {
		all.Go(func() {
			var err error
			if owners[i], err = e.Store.BindCollector(e.ctx, "c1", fmt.Sprint("token:", i), dispatch.BindingTTL); err != nil {
				e.Errorf("bind: %v", err)
			}
		})
	}
	all.Wait()
	for _, owner := range owners {
		is(e, "owner", owner, owners[0])
	}
}

func bindEnds(e *env) {
	e.bind("c1", "token:a")
	e.advance(dispatch.BindingTTL - time.Millisecond)
	is(e, "owner just before the end", e.bind("c1", "token:b"), "token:a")
	e.advance(time.Millisecond)
	is(e, "whose it was at the end", e.release("c1"), "")
	is(e, "owner at the end", e.bind("c1", "token:b"), "token:b")
	is(e, "owner for the first one", e.bind("c1", "token:a"), "token:b")
}

func bindExtends(e *env) {
	e.bind("c1", "token:a")
	e.advance(dispatch.BindingStep - time.Millisecond)
	e.bind("c1", "token:a") // extends it by too little
	e.bind("c2", "token:a")
	e.advance(dispatch.BindingTTL - dispatch.BindingStep + time.Millisecond)
	is(e, "owner of c1", e.bind("c1", "token:b"), "token:b")
	is(e, "owner of c2", e.bind("c2", "token:a"), "token:a")
	e.advance(dispatch.BindingTTL - time.Millisecond)
	is(e, "owner of c1 later", e.bind("c1", "token:a"), "token:b")
	is(e, "owner of c2 later", e.bind("c2", "token:b"), "token:a")
}

// bindForAWhile: a binding for a shorter time is extended by half of it and more, and shortens none.
func bindForAWhile(e *env) {
	bind := func(collector, identity string) string {
		e.Helper()
		owner, err := e.Store.BindCollector(e.ctx, collector, identity, 10*time.Minute)
		e.ok("bind", err)
		return owner
	}
	bind("c1", "token:a")
	bind("c2", "token:a")
	bind("c3", "token:a")
	e.bind("c3", "token:a")
	bind("c3", "token:a")
	e.advance(5 * time.Minute)
	bind("c1", "token:a")
	e.advance(5 * time.Minute)
	is(e, "owner of c1", bind("c1", "token:b"), "token:a")
	is(e, "owner of c2", bind("c2", "token:b"), "token:b")
	e.advance(5 * time.Minute)
	is(e, "owner of c1 later", bind("c1", "token:b"), "token:b")
	is(e, "owner of c3", bind("c3", "token:b"), "token:a")
}

func bindMany(e *env) {
	name := func(i int) string { return fmt.Sprint("c", i) }
	for i := range 10 {
		e.bind(name(i), "token:a")
	}
	e.advance(dispatch.BindingTTL)
	for i := range 12 {
		is(e, "owner", e.bind(name(11-i), "token:b"), "token:b")
	}
	for i := range 12 {
		is(e, "owner afterwards", e.bind(name(i), "token:a"), "token:b")
	}
}

func bindEmpty(e *env) {
	_, err := e.Store.BindCollector(e.ctx, "", "token:a", time.Minute)
	e.fails("bind of no collector", err, dispatch.ErrInvalid)
	_, err = e.Store.BindCollector(e.ctx, "c1", "", time.Minute)
	e.fails("bind to no identity", err, dispatch.ErrInvalid)
	is(e, "whose it was", e.release("c1"), "")
}

func releaseBinding(e *env) {
	is(e, "whose it was at first", e.release("c1"), "")
	e.bind("c1", "token:a")
	e.bind("c2", "token:a")
	is(e, "whose it was", e.release("c1"), "token:a")
	is(e, "whose it was then", e.release("c1"), "")
	is(e, "owner", e.bind("c1", "token:b"), "token:b")
	is(e, "owner of the other one", e.bind("c2", "token:b"), "token:a")
}

func restartBindings(e *env) {
	e.bind("c1", "token:a")
	e.bind("c2", "token:a")
	e.release("c2")
	e.restart()
	is(e, "owner", e.bind("c1", "token:b"), "token:a")
	is(e, "owner of the one released", e.bind("c2", "token:b"), "token:b")
	e.advance(dispatch.BindingTTL)
	e.restart()
	is(e, "owner at the end", e.bind("c1", "token:b"), "token:b")
}
