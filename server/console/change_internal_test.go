package console

import (
	"os"
	"regexp"
	"testing"
)

// All texts of the changes are there in each language, with the same verbs in the same order.
func TestTexts_changes(t *testing.T) {
	t.Parallel()
	texts, of := regexp.MustCompile(`(?:say\(|Label: |Hint: |scheduleHint = |\{\{t |planTasks\(v, f, )"([^"]+)"|^\t\t"[a-z]+": +\{"([^"]+)"`), allTexts()[chinese].of
	verb := regexp.MustCompile(`%[a-z]`)
	n := 0
	for _, file := range []string{"change.go", "changehold.go", "changerule.go", "changesource.go", "changetask.go", "add.go", "templates/change.html"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range texts.FindAllStringSubmatch(string(data), -1) {
			text := found[1] + found[2]
			translated, ok := of[text]
			if n++; !ok {
				t.Errorf("%s: %q has no text", file, text)
				continue
			}
			if a, b := verb.FindAllString(text, -1), verb.FindAllString(translated, -1); len(a) != len(b) {
				t.Errorf("%s: %q has %v, %q has %v", file, text, a, translated, b)
			}
		}
	}
	for _, of := range actions(true) {
		if _, ok := allTexts()[chinese].of[of.title]; !ok {
			t.Errorf("%q has no text", of.title)
		}
	}
	if n < 80 {
		t.Errorf("only %d texts were found", n)
	}
}
