// Package console is Waggle's pages for people: what is not well, what stands still and why, in a browser. They are made here, of what
// the API answers to the one who asks, so that a page shows and does what its reader may; there is nothing that it knows beside that.
// Reading works without script; with it a page is made anew when something may have changed.
//
// All changes take one road: a page shows what would happen, with the command that does the same, and asks why; its form makes the change,
// and the audit has the reason. A new change is an entry of the table in change.go.
//
// All links are relative, so that a proxy may put the pages below any path.
package console
