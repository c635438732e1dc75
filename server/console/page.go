package console

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/http"
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
	Data     any
}

// view is the data of a page, and what its frame says.
type view struct {
	page, title, command string
	live                 bool
	data                 any
}

// write writes a page.
func (v *visit) write(w http.ResponseWriter, code int, data any) {
	of, ok := data.(*view)
	if !ok {
		of = &view{page: "failure", title: "Not possible", data: data}
	}
	nonce := rand.Text()
	here := "."
	if v.URL.Path != "/" {
		here = v.URL.Path[1:]
	}
	if v.URL.RawQuery != "" {
		here += "?" + v.URL.RawQuery
	}
	var page bytes.Buffer
	err := v.text.templates.ExecuteTemplate(&page, "layout", &layout{
		Page: of.page, Title: of.title, Lang: v.text.lang, Nonce: nonce, Assets: "assets/" + assetVersion, Here: here,
		Identity: v.identity, Guarded: v.c.cfg.Guarded, Live: of.live, Version: v.c.cfg.Version, Command: of.command, Data: of.data,
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
