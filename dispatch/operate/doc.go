// Package operate is what operators do with a store: sources, queue rules, holds, tasks,
// and what they look at.
package operate
