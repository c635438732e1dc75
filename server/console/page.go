package console

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

// layout is what every page has.
type layout struct {
	Page     string // the name of its template
	Title    string
	Lang     string
	Nonce    string // of the scripts of this answer
	Assets   string
	Here     string // the address of the page, relative
	Identity string
	Guarded  bool
	Live     bool
	Version  string
	Command  string // that shows the same
	Acts     []act  // buttons that lead to changes
	Matching []act  // changes of all that a list shows
	Picks    []act  // changes of what is chosen in the list
	Done     string // what was changed just now
	Data     any
}

// view is the data of a page, and what its frame says.
type view struct {
	page, title, command  string
	live                  bool
	code                  int // of the answer, if that is not OK
	acts, matching, picks []act
	data                  any
}

// write writes a page.
func (v *visit) write(w http.ResponseWriter, code int, data any) {
	of, ok := data.(*view)
	if !ok {
		of = &view{page: "failure", title: "Not possible", data: data}
	}
	nonce := rand.Text()
	if of.code != 0 {
		code = of.code
	}
	done := v.done(w)
	var page bytes.Buffer
	err := v.text.templates.ExecuteTemplate(&page, "layout", &layout{
		Page: of.page, Title: of.title, Lang: v.text.lang, Nonce: nonce, Assets: "assets/" + assetVersion, Here: v.here(),
		Identity: v.identity, Guarded: v.c.cfg.Guarded, Live: of.live, Version: v.c.cfg.Version, Command: of.command, Acts: of.acts, Matching: of.matching, Picks: of.picks, Done: done, Data: of.data,
	})
	if err != nil {
		http.Error(w, fmt.Sprintf("the page could not be made: %v", err), http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Language", v.text.lang)
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'nonce-"+nonce+"'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types htmx")
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(page.Bytes()) // a browser that has gone misses nothing
}

// doneCookie has what was changed, for the page that follows.
const doneCookie = "waggle-done"

// maxDone is how much of it fits a cookie, in bytes.
const maxDone = 1000

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// done is what was changed before this page, which says it once.
func (v *visit) done(w http.ResponseWriter) string {
	cookie, err := v.Cookie(doneCookie)
	if err != nil {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return ""
	}
	setCookie(w, v.Request, &http.Cookie{Name: doneCookie, MaxAge: -1})
	return string(text)
}
