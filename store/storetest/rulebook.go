package storetest

import (
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
	b.unfile(r.Pattern, r.SettingsName())
	b.rules[r.Pattern] = r
	b.filed[r.SettingsName()] = filedSettings{r.Pattern, r.Settings}
}

// remove removes a rule, as DeleteRule does.
func (b *ruleBook) remove(pattern string) {
	b.unfile(pattern, "")
	delete(b.rules, pattern)
}

// unfile takes back the settings that a rule has filed, but under keep.
func (b *ruleBook) unfile(pattern, keep string) {
	old, ok := b.rules[pattern]
	if !ok || old.SettingsName() == keep {
		return
	}
	if b.filed[old.SettingsName()].pattern == pattern {
		delete(b.filed, old.SettingsName())
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
