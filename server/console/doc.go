// Package console is Waggle's pages for people: what is not well, what stands still and why, in a browser. They are made here, of what
// the API answers to the one who asks, so that a page shows and does what its reader may; there is nothing that it knows beside that.
// Reading works without script; with it a page is made anew when something may have changed.
//
// All links are relative, so that a proxy may put the pages below any path.
package console
