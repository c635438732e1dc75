// Package browsertest opens each page of the console in Chromium. It is a module of its own, so that nobody who builds Waggle needs what
// drives a browser. In testdata is axe-core 4.14.1 of https://github.com/dequelabs/axe-core, under the MPL 2.0 (axe-LICENSE); it is in no
// build.
package browsertest
