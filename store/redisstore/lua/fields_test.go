package lua_test

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/waggle-crawl/waggle/store/redisstore/lua"
)

// reused are the tables that scripts use again in later calls: the functions that make one
// begin, each path in turn, and the fields that are set later, before they are read.
var reused = map[string]struct {
	files  []string // where the name means such a table; all where empty
	begins [][]string
	later  []string
}{
	"l": {begins: [][]string{{"new_lane", "lay_lane"}}, later: []string{"look", "first", "first_later"}},
	"q": {begins: [][]string{{"new_queue", "lay_nothing"}, {"new_queue", "unpack_queue"}}, later: []string{"own"}},
	"a": {
		files:  []string{"prelude/", "parts/turn.lua"},
		begins: [][]string{{"add_part", "part"}, {"add_part", "read_part"}},
	},
}

// TestScripts_FieldsBegin keeps what one call leaves in a table from being read by the next
// one: every field of such a table is set where the table begins.
func TestScripts_FieldsBegin(t *testing.T) {
	t.Parallel()
	texts := luaTexts(t)
	for table, of := range reused {
		fields := make(map[string]string) // and a file that has it
		for file, text := range texts {
			if len(of.files) > 0 && !slices.ContainsFunc(of.files, func(p string) bool { return strings.HasPrefix(file, p) }) {
				continue
			}
			for _, m := range regexp.MustCompile(`\b`+table+`\.([a-z_]+)`).FindAllStringSubmatch(text, -1) {
				fields[m[1]] = file
			}
		}
		if len(fields) < 10 {
			t.Errorf("only %d fields of %s were found", len(fields), table)
		}
		for _, begin := range of.begins {
			set := make(map[string]bool)
			for _, name := range begin {
				for field := range fieldsSet(t, texts, name, table) {
					set[field] = true
				}
			}
			for field, file := range fields {
				if !set[field] && !slices.Contains(of.later, field) {
					t.Errorf("%s.%s (%s) is not set by %s", table, field, file, strings.Join(begin, " and "))
				}
			}
		}
	}
}

// luaTexts are the files of scripts without their comments.
func luaTexts(t *testing.T) map[string]string {
	t.Helper()
	texts, comment := make(map[string]string), regexp.MustCompile(`--[^\n]*`)
	err := fs.WalkDir(lua.Files, ".", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, ".lua") {
			return err
		}
		text, err := lua.Files.ReadFile(file)
		texts[file] = comment.ReplaceAllString(string(text), "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// fieldsSet are the fields of a table that a function of the scripts assigns.
func fieldsSet(t *testing.T, texts map[string]string, function, table string) map[string]bool {
	t.Helper()
	// These functions are in a do-block at most, and what is in them is further in.
	body := regexp.MustCompile(`(?ms)^ {0,2}(?:local )?function ` + function + `\(.*?^ {0,2}end$`)
	target := regexp.MustCompile(`\b` + table + `\.([a-z_]+)`)
	set := make(map[string]bool)
	for _, text := range texts {
		for line := range strings.Lines(body.FindString(text)) {
			targets, _, assigns := strings.Cut(line, " = ")
			if !assigns {
				continue
			}
			for _, m := range target.FindAllStringSubmatch(targets, -1) {
				set[m[1]] = true
			}
		}
	}
	if len(set) == 0 {
		t.Errorf("no function %s sets fields of %s", function, table)
	}
	return set
}
