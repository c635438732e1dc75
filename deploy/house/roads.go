package main

import (
	"fmt"
	"go/types"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// road is the way of a call through the dispatcher. It begins where the interceptors are put together and with the handler, and
// follows all that these call in this module, except what is cut. Its functions have the context of the call (as a parameter, a
// captured variable, a field of one, or a gRPC stream), or lead to one that has. All others are leaves: they convert, compare or
// count, and their names suffice.
type road struct {
	name    string
	chain   []string          // the functions that put together what comes before the handler
	handler string            // the type of what they call; those of others are not followed
	begin   string            // the handler
	end     string            // what the road must get to
	cut     map[string]string // functions that are not followed, and why
}

// waggle are the roads of this repository.
func waggle() []road {
	chain := []string{"(*server.chain).options", "(*server.Server).newChain", "(*server.chain).decoded"}
	const service = "(*server.dispatchService)."
	const audited, changes = "(*server.chain).audited", "only for what operators change"
	const engine, store = "(*dispatch/engine.Dispatcher).", "(*store.Store)."
	const carried, begun = "the road of ReportTask", "once in a session: it ends the older ones"
	const empty = "only if a narrowed fetch got nothing: to say why"
	const watch, changed = "(*dispatch/engine.holdWatch).", "before the first, and when a shard knows of newer holds"
	const publish, woken = "(*store.hints).publish", "it wakes fetches that wait: the road of FetchTask"
	const pass, serve = "(*server.passing).pass", "(*server.passing).serve"
	const passBeats, serveBeats = "(*server.moving).pass", "(*server.moving).serve"
	const reaches, stands = "(*server.Server).reaches", "a dispatcher is to stand by: a road of its own"
	const work = "the heartbeats of a Work stream come another way"
	const json = "of the JSON API, not of gRPC"
	const elsewhere, here = "another dispatcher owns the store: a road of its own", "it calls the handler"
	return []road{
		{"FetchTask", chain, "UnaryHandler", service + "FetchTask", store + "Claim", map[string]string{
			audited: changes, pass: elsewhere, serve: here, engine + "Report": carried, engine + "recall": carried, engine + "beginSession": begun,
			watch + "refresh": changed, engine + "narrowedEmpty": empty, publish: woken, reaches: stands,
		}},
		{"ReportTask", chain, "UnaryHandler", service + "ReportTask", store + "Apply", map[string]string{
			audited: changes, pass: elsewhere, serve: here, engine + "noteReleased": "only for a task that was released 20 times in a row",
			publish: woken, reaches: stands,
		}},
		{"Heartbeat", chain, "StreamHandler", service + "Heartbeat", store + "Renew", map[string]string{
			engine + "beginSession": begun, passBeats: elsewhere, serveBeats: here, publish: woken, reaches: stands,
			"(*server.passedStream).RecvMsg": elsewhere, "(*server.passedStream).SendMsg": elsewhere,
			"(*server.workBeats).RecvMsg": work, "(*server.workBeats).SendMsg": work,
			"(*server.httpStream).RecvMsg": json, "(*server.httpStream).SendMsg": json,
			"(*server.httpStream).Context": json,
			"(*server.localStream).RecvMsg": elsewhere, "(*server.localStream).SendMsg": elsewhere,
		}},
	}
}

// hidden are packages that no road leads to, as none leads to a kit: tools and collectors are no part of the dispatcher, and the
// backend is the one in Redis. The command is, since it puts the parts together. Generated code only passes a call on.
var hidden = regexp.MustCompile(`^(store/backend/dir|(collector|deploy|proto)(/.*)?)$`)

// walk returns the files of a road, in the order in which a reader meets them who follows it depth first.
func (c *calls) walk(r road) (files []string, err error) {
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(r.cut)), r.chain, []string{r.begin, r.end}) {
		if c.named[name] == nil {
			return nil, fmt.Errorf("there is no function %s", name)
		}
	}
	takes := make(map[*ssa.Function]bool) // those met, and whether they take the call along
	var order []*ssa.Function
	var visit func(f *ssa.Function)
	visit = func(f *ssa.Function) {
		if _, met := takes[f]; met || r.cut[c.name(f)] != "" || r.isForOthers(f) {
			return
		}
		takes[f], order = hasContext(f), append(order, f)
		for _, callee := range c.callees[f] {
			visit(callee)
		}
	}
	for _, name := range r.chain {
		visit(c.named[name])
	}
	visit(c.named[r.begin])
	if _, met := takes[c.named[r.end]]; !met {
		return nil, fmt.Errorf("it does not get to %s", r.end)
	}
	for changed := true; changed; {
		changed = false
		for _, f := range order {
			if !takes[f] && slices.ContainsFunc(c.callees[f], func(callee *ssa.Function) bool { return takes[callee] }) {
				takes[f], changed = true, true
			}
		}
	}
	for _, f := range order {
		isWritten := f.Synthetic == "" || f.Origin() != nil
		if file := c.file(f); takes[f] && isWritten && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files, nil
}

// isForOthers reports whether a function is an interceptor of another kind of call.
func (r road) isForOthers(f *ssa.Function) bool {
	params := f.Signature.Params()
	if params.Len() == 0 {
		return false
	}
	last := params.At(params.Len() - 1).Type().String()
	return strings.Contains(last, "grpc.") && strings.HasSuffix(last, "Handler") && !strings.HasSuffix(last, "."+r.handler)
}

func hasContext(f *ssa.Function) bool {
	has := func(t types.Type) bool {
		if p, ok := t.Underlying().(*types.Pointer); ok {
			t = p.Elem()
		}
		s, _ := t.Underlying().(*types.Struct)
		for i := 0; s != nil && i < s.NumFields(); i++ {
			if isContext(s.Field(i).Type()) {
				return true
			}
		}
		return isContext(t)
	}
	return slices.ContainsFunc(f.Params, func(p *ssa.Parameter) bool { return has(p.Type()) }) ||
		slices.ContainsFunc(f.FreeVars, func(v *ssa.FreeVar) bool { return has(v.Type()) })
}

// isContext reports whether values of a type are contexts, or have one, as gRPC's streams do.
func isContext(t types.Type) bool {
	const context = "context.Context"
	method, _, _ := types.LookupFieldOrMethod(t, true, nil, "Context")
	return t.String() == context || method != nil && method.Type().String() == "func() "+context
}

// walked is a road and its files.
type walked struct {
	road
	files []string
}

// printRoads prints the files of each road, and what it leaves out.
func (h *house) printRoads(out io.Writer) {
	for _, name := range slices.Sorted(maps.Keys(h.roads)) {
		r := h.roads[name]
		fmt.Fprintf(out, "\nFiles of %s, to %s\n", name, r.end)
		for i, file := range r.files {
			fmt.Fprintf(out, "  %3d %s\n", i+1, file)
		}
		for _, cut := range slices.Sorted(maps.Keys(r.cut)) {
			fmt.Fprintf(out, "  without %s\n      (%s)\n", cut, r.cut[cut])
		}
	}
}
