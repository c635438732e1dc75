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
		// It calls ApplySources.
		Aliases: []string{"apply"},
		Short:   "Import sources from OPML, CSV or other files",
		Long:    help(),
		Example: `  waggle source import feeds.opml --every 30m --prefix feeds.
  waggle source import sources.csv --dry-run
  waggle source import shops.csv --every 1d --queue shops
  waggle source import urls.txt.gz --every 1d --follow --report report.csv
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
	b.WriteString(`Import sources from a file; - is standard input. The name of the file or its beginning gives the format,
through gzip too: OPML (the outlines around a feed become its label "category"), CSV, JSON lines (a SourceSpec each, or what
'source get --output json' writes), a sitemap (each page is a source), an index of sitemaps (each sitemap is a source), or a URL
a line.

Flags apply to sources for which the file does not set the same. A source without an id gets one from its first URL, the same
for each spelling of the URL. First crawls are spread over the first interval, or are at the first tick
of --cron, unless --now is given.

Import the same file again at any time, also after a failed import. A source that exists is changed to what the file and the
flags set; the rest of it stays, labels and metadata are added. With --replace the rest goes back to its defaults.

New sources share the scope "import", behind --prefix, so that an article is crawled once, whichever feeds list it. A scope in the file wins; --scope-per-source gives each source its own. New sources ignore utm_ and other tracking parameters
(canonical rules 2). Both are fixed when a source is created: a later import does not change them. A source for which the file
sets canonical_rules, as exports do, gets the scope of the file, or its own.

The items of a feed are fetched on any host, one step far. --follow-host fetches only those on the feed's own host; --follow
also follows links on that host.

A feed that is in the file twice becomes one source with the labels of both; two categories are joined by a comma. Unescaped &,
names of HTML such as &nbsp;, bytes that are not UTF-8, feed: URLs and too long names are mended; a comma in the name of a folder
becomes a semicolon. Outlines that are commented out are left out, and pages that a reader scrapes become sources without a
kind. Each of these is reported with its line. Other lists that an OPML includes are refused: import them too.

--queue, or a column queue, sets the queue of seeds alone, also of existing ones: they move. 'waggle queue rule set' maps all of
a host, before it has tasks.

--prune PREFIX also deletes the sources whose id begins with PREFIX and which the file does not have. It deletes nothing if an
entry was refused, if the file cannot be read to its end, if no id of the file begins with PREFIX, or if it would delete more
than --prune-max of them: the file may have been cut short. The rest of the import is done all the same; the exit code is 1.
Look with --dry-run first; --report has all that would be deleted.

Columns of a CSV, in any order, of which url or id must be there:
`)
	for _, column := range sourcefile.Columns() {
		fmt.Fprintf(&b, "  %-16s%s\n", column.Name, column.What)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func run(ctx context.Context, c *client.Client, f *importFlags, name string, stdin io.Reader) error {
	in, err := cli.OpenInput(ctx, name, stdin)
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	defer in.Close()
	entries, err := sourcefile.Read(in, name, sourcefile.Format(f.format))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && len(entries) == 0:
		return fmt.Errorf("%s: %w", in.Path, err)
	case len(entries) == 0 && f.prune == "":
		return in.ErrNothing()
	}
	report, openErr := cli.OpenReport(f.report, "line", "id", "result", "error", "changed", "lost")
	if openErr != nil {
		return openErr
	}
	j := &job{client: c, flags: f, progress: c.Progress("source"), byID: map[string]*entry{}, broken: err}
	j.patience = &client.Patience{For: client.RestartPatience, Note: c.Note}
	j.take(entries)
	if err = j.apply(ctx); err == nil && f.prune != "" {
		err = j.prune(ctx)
	}
	return errors.Join(j.finish(in, report, err), report.Close())
}
