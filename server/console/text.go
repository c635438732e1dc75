package console

import (
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/text/language"
)

// Languages of the pages. English is the language of the templates: its texts are the keys of the others.
const (
	english = "en"
	chinese = "zh"
)

//go:embed templates
var templateFiles embed.FS

//go:embed zh.json
var chineseTexts []byte

// texts are the pages in a language.
type texts struct {
	lang      string
	of        map[string]string // by the English text
	templates *template.Template
}

func allTexts() map[string]*texts {
	all := map[string]*texts{english: {lang: english}, chinese: {lang: chinese}}
	if err := json.Unmarshal(chineseTexts, &all[chinese].of); err != nil {
		panic(fmt.Errorf("zh.json: %w", err)) // of an embedded file
	}
	for _, t := range all {
		t.templates = template.Must(template.New("").Funcs(t.funcs()).ParseFS(templateFiles, "templates/*.html"))
	}
	return all
}

// say is a text in the language, with values in place of its verbs as of [fmt.Sprintf].
func (t *texts) say(text string, values ...any) string {
	if found, ok := t.of[text]; ok {
		text = found
	}
	if len(values) == 0 {
		return text
	}
	return fmt.Sprintf(text, values...)
}

const languageCookie = "waggle-language"

var languages = language.NewMatcher([]language.Tag{language.English, language.SimplifiedChinese})

// textOf is in the language that the reader has chosen, or that of the browser.
func (c *Console) textOf(r *http.Request) *texts {
	chosen := ""
	if cookie, err := r.Cookie(languageCookie); err == nil {
		chosen = cookie.Value
	}
	if found := c.text[chosen]; found != nil {
		return found
	}
	if _, i := language.MatchStrings(languages, r.Header.Get("Accept-Language")); i == 1 {
		return c.text[chinese]
	}
	return c.text[english]
}

func (c *Console) setLanguage(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	if lang := r.PostFormValue("lang"); c.text[lang] != nil {
		setCookie(w, r, &http.Cookie{Name: languageCookie, Value: lang, MaxAge: 365 * 24 * 3600})
	}
	redirect(w, pageTo(r.PostFormValue("to")))
}

func escapeQuery(text string) string { return url.QueryEscape(text) }

// word is an enum value as people read it: of SOURCE_HEALTH_BACKED_OFF "backed off".
func (t *texts) word(value fmt.Stringer, prefix string) string {
	return t.say(strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(value.String(), prefix), "_", " ")))
}
