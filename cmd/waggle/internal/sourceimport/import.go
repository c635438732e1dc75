// Package sourceimport has the command that registers the sources of a file.
package sourceimport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/client"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
)

// New makes the command.
func New(o *client.Options) *cobra.Command {
	f := &importFlags{}
	cmd := &cobra.Command{
		Use: "import FILE",
		// What it does is ApplySources.
		Aliases: []string{"apply"},
		Short:   "Register sources from OPML, CSV, JSON lines, sitemaps or URL lists",
		Long:    help(),
		Example: `  waggle source import feeds.opml --every 30m --prefix feeds.
  waggle source import sources.csv --dry-run
  waggle source import shops.csv --every 1d --queue shops
  waggle source import urls.txt.gz --every 1d --follow --report report.csv --resume urls.state
  waggle source import news.jsonl --prune news. --dry-run
  curl -s https://example.com/sitemap.xml | waggle source import - --every 6h`,
		Args: cli.Exactly("the FILE (or - for standard input)"),
	}
	f.register(cmd)
	f.record.Register(cmd, o.Console)
	cmd.RunE = o.Call(func(ctx context.Context, c *client.Client, args []string) error {
		if err := f.check(args[0]); err != nil {
			return err
		}
		return run(ctx, c, f, args[0], cmd.InOrStdin())
	})
	return cmd
}

func help() string {
	var b strings.Builder
	b.WriteString(`Register sources from a file; - is standard input. The format is told by the
name of the file or its beginning, through gzip too: OPML (outlines around a
feed become its label "category"), CSV, JSON lines (a SourceSpec each, or what
'source get --output json' writes), a sitemap (each page is a source) or an
index of sitemaps (each sitemap is one), or a URL a line.

Flags say what holds for sources that say nothing themselves. First crawls are
spread over the first interval unless --now is given. A source without an id
has one made from its first URL, the same each time: host and path, with _ for
each slash; where that does not say all of the URL, a hyphen and ten digits of
its SHA-256 follow.

Sources that exist are brought to what the file and the flags say. What those do
not say (a column that is absent, a cell that is empty) stays as it is, labels and
metadata are added; with --replace it goes back to its default. An import that was
interrupted may be repeated as it is: what is there already answers UNCHANGED.
Hosts that share a queue are mapped by 'waggle queue rule set' before there are
tasks of theirs. --queue, or a column queue, says it of seeds alone, also of those
that are there: they move.

--resume keeps a file of how far it came, and passes over that part.

--prune PREFIX also deletes the sources whose id begins with PREFIX and which the
file does not have, as 'source delete' does; others it never touches. It deletes
nothing when an entry was refused, when the rest of the file cannot be read, when
no id of the file begins with PREFIX, or when it would delete more than --prune-max
of the sources whose id did so before: the file may have been cut short. What the
file has is created and updated all the same; the exit code is 1. Look with --dry-run
first; --report has all that would be deleted.

Columns of a CSV, in any order, of which url or id must be there:
`)
	for _, column := range sourcefile.Columns() {
		fmt.Fprintf(&b, "  %-16s%s\n", column[0], column[1])
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func run(ctx context.Context, c *client.Client, f *importFlags, name string, stdin io.Reader) (err error) {
	in, err := cli.OpenInput(ctx, name, stdin)
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	defer in.Close()
	digest := ""
	if f.resume != "" {
		if digest, err = f.digest(in.File); err != nil {
			return err
		}
	}
	if err := f.apart(name); err != nil {
		return err
	}
	state, err := openState(f.resume, digest)
	if err != nil {
		return err
	}
	report, err := cli.OpenReport(f.report, state.Report, "line", "id", "result", "error", "changed", "lost")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, report.Close()) }()
	counted := &countingReader{in: in}
	entries, format, err := sourcefile.Open(counted, name, sourcefile.Format(f.format))
	if err != nil {
		return fmt.Errorf("%s: %w", in.Path, err)
	}
	p := newProgress(c, counted, in.Size)
	j := &job{
		client: c, flags: f, in: in, format: format, entries: entries, state: state, report: report,
		seen: &seen{ids: map[uint64]seenID{}, pages: map[uint64]int{}}, progress: p, patience: &client.Patience{For: client.RestartPatience, Note: p.note},
	}
	return j.run(ctx)
}
