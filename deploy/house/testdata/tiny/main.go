// Command tiny puts the parts together.
package main

import (
	"tiny/engine"
	"tiny/memory"
	"tiny/server"
	"tiny/store"
)

func main() {
	new(server.Server).Chain()
	for _, e := range []*engine.Engine{engine.New(&store.Store{}), engine.New(memory.Store{})} {
		_ = &server.Service{Engine: e}
	}
}
