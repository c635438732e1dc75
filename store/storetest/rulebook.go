package storetest

import (
	"maps"
	"slices"
	"strings"

	"github.com/waggle-crawl/waggle/dispatch"
)

// ruleBook resolves settings the naive way.
type ruleBook struct {
	version int64
	rules   map[string]dispatch.QueueRule
	// filed are settings by name, with the pattern of the rule that filed them.
	filed map[string]filedSettings
}

type filedSettings struct {
	pattern  string
	settings dispatch.QueueSettings
}

func newRuleBook() ruleBook {
	return ruleBook{rules: map[string]dispatch.QueueRule{}, filed: map[string]filedSettings{}}
}

// set keeps a rule, as SetRule does.
func (b *ruleBook) set(r dispatch.QueueRule) {
	old, replaced := b.rules[r.Pattern]
	b.rules[r.Pattern] = r
	if replaced && old.SettingsName() != r.SettingsName() {
		b.unfile(old)
	}
	b.filed[r.SettingsName()] = filedSettings{r.Pattern, r.Settings}
}

// remove removes a rule, as DeleteRule does.
func (b *ruleBook) remove(pattern string) {
	old, ok := b.rules[pattern]
	delete(b.rules, pattern)
	if ok {
		b.unfile(old)
	}
}

// unfile takes back the settings that a rule has filed, for those of the first other rule by pattern that names them.
func (b *ruleBook) unfile(old dispatch.QueueRule) {
	name := old.SettingsName()
	if b.filed[name].pattern != old.Pattern {
		return
	}
	delete(b.filed, name)
	for _, pattern := range slices.Sorted(maps.Keys(b.rules)) {
		if r := b.rules[pattern]; r.SettingsName() == name {
			b.filed[name] = filedSettings{pattern, r.Settings}
			return
		}
	}
}

// settings of a queue: the longest match, or the defaults.
func (b *ruleBook) settings(queue string) dispatch.QueueSettings {
	s := dispatch.DefaultQueueSettings()
	for _, name := range settingsNames(queue) {
		if f, ok := b.filed[name]; ok {
			s = f.settings
			break
		}
	}
	return s
}

// settingsNames are the names to look under, longest first.
func settingsNames(queue string) []string {
	host, _, port := strings.Cut(queue, ":")
	names := []string{queue}
	if port {
		names = append(names, host)
	}
	for rest := host; ; {
		_, after, ok := strings.Cut(rest, ".")
		if !ok {
			return append(names, "*")
		}
		names = append(names, "*."+after)
		rest = after
	}
}
