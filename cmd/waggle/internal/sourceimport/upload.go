package sourceimport

import (
	"io"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server/console"
)

// ReadForConsole reads a file as the command does that has no flags but the schedule. It is a [console.SourceReader].
func ReadForConsole(in io.Reader, name string, schedule *pb.Schedule) ([]console.FileEntry, error) {
	entries, err := sourcefile.Read(in, name, "")
	if err != nil {
		return nil, err
	}
	f := &importFlags{defaults: &pb.SourceSpec{Schedule: schedule}}
	if schedule != nil {
		f.defaults.FirstCrawl = pb.FirstCrawl_FIRST_CRAWL_SPREAD
	}
	j := &job{flags: f, byID: make(map[string]*entry)}
	j.take(entries)
	var all []console.FileEntry
	for _, e := range j.entries {
		switch {
		case e.refused():
			all = append(all, console.FileEntry{Line: e.line, Fault: e.text()})
		case e.result == cli.ResultDuplicate: // it is merged into another one
		default:
			all = append(all, console.FileEntry{Line: e.line, Spec: f.complete(e.spec, true)})
		}
	}
	return all, nil
}
