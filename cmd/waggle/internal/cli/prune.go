package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

const (
	// prunePercent of what --prune is about, and pruneAlways in any case, may go unless --prune-max names another bound:
	// a list that was cut short lacks more than that, and ordinary housekeeping takes out less.
	prunePercent = 10
	pruneAlways  = 10

	// shownPruned is how many of those that would go a refusal names.
	shownPruned = 3
)

// PruneBound is how much --prune may delete: a number, or a percentage. A plain-text file that was cut short looks like
// one whose other lines were taken out.
type PruneBound struct {
	yes     bool
	given   bool
	n       int
	percent bool // n is one
}

// Register adds the flags; things are what --prune deletes, by what they are named.
func (b *PruneBound) Register(flags *pflag.FlagSet, things string) {
	flags.BoolVar(&b.yes, "yes", false, "delete what --prune finds, without "+things+" being named one by one")
	usage := fmt.Sprintf("delete nothing when --prune would delete more than this `N|P%%` (default %d%%, or %d where that is more)", prunePercent, pruneAlways)
	ValueVar(flags, "prune-max", "bound", usage, func(text string) (string, error) {
		digits, percent := strings.CutSuffix(text, "%")
		n, err := strconv.ParseUint(digits, 10, 31)
		if err != nil || percent && n > 100 {
			return "", fmt.Errorf("%q is neither a number nor a percentage up to 100%%; say 500 or 25%%", text)
		}
		b.given, b.n, b.percent = true, int(n), percent
		return text, nil
	})
}

// Check wants --yes with --prune, unless nothing is to be changed.
func (b *PruneBound) Check(prune, dryRun bool) error {
	switch {
	case b.given && !prune:
		return Usagef("--prune-max is the bound of --prune, which is missing")
	case prune && !b.yes && !dryRun:
		return Usagef("--prune deletes whatever the file does not have: look with --dry-run, then say --yes")
	}
	return nil
}

// of is the bound where --prune is about all.
func (b *PruneBound) of(all int) int {
	switch {
	case !b.given:
		return max(all*prunePercent/100, pruneAlways)
	case b.percent:
		return all * b.n / 100
	}
	return b.n
}

// Refusal is why some of all things are too many to delete, and what lets them go; empty: they are not. The first names
// stand for all.
func (b *PruneBound) Refusal(some, all int, thing string, first []string) string {
	bound := b.of(all)
	if some <= bound {
		return ""
	}
	names := strings.Join(first[:min(len(first), shownPruned)], ", ")
	if some > shownPruned {
		names += ", ..."
	}
	return fmt.Sprintf("--prune would delete %s of %s (%s), more than %s: is the file whole? If it is, --prune-max %d lets them go",
		human.Count(some), human.Plural(all, thing), names, human.Count(bound), some)
}
