package apply

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/describe"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/sourcefile"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/textfile"
	"github.com/waggle-crawl/waggle/dispatch/canonical"
	pb "github.com/waggle-crawl/waggle/proto/waggle/v1"
	"github.com/waggle-crawl/waggle/server"
)

// Kinds of entries, as a file names them.
const (
	kindSource = "source"
	kindRule   = "queue_rule"
	kindHold   = "hold"
)

// entry is an object of a file, and what becomes of it. One of source, rule and hold is set, unless err is.
type entry struct {
	at     string // file:line
	source *pb.SourceSpec
	rule   *pb.QueueRule
	hold   *pb.Hold
	err    error

	result, text string
}

// name is the kind of the entry and what names it.
func (e *entry) name() (kind, name string) {
	switch {
	case e.source != nil:
		return kindSource, e.source.GetId()
	case e.rule != nil:
		return kindRule, e.rule.GetPattern()
	case e.hold != nil:
		return kindHold, describe.HoldName(e.hold)
	}
	return "", ""
}

// extensions of the files that a directory is read for.
var extensions = []string{".yaml", ".yml", ".json", ".jsonl", ".ndjson", ".csv", ".tsv"}

func extension(path string) string {
	return filepath.Ext(strings.TrimSuffix(strings.ToLower(path), ".gz"))
}

// read reads the files of these names, and those in directories. Entries with the name of an earlier one are wrong.
func read(ctx context.Context, names []string, stdin io.Reader) (entries []*entry, err error) {
	for _, name := range names {
		files, err := filesOf(name)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			found, err := readFile(ctx, file, stdin)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if entries = append(entries, found...); err != nil { // the other files may be wrong, too
				entries = append(entries, &entry{at: file, err: err})
			}
		}
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("%w in %s", cli.ErrNothing, strings.Join(names, " "))
	}
	first := map[[2]string]*entry{}
	for _, e := range entries {
		kind, name := e.name()
		switch before := first[[2]string{kind, name}]; {
		case e.err != nil:
		case before != nil:
			e.err = fmt.Errorf("%s %s is at %s, too", kind, name, before.at)
		default:
			first[[2]string{kind, name}] = e
		}
	}
	return entries, nil
}

// filesOf are the files below a directory, by name, or the one file.
func filesOf(name string) (files []string, err error) {
	if name == "-" {
		return []string{name}, nil
	}
	err = filepath.WalkDir(name, func(path string, file fs.DirEntry, err error) error {
		if err != nil { // file is nil if there is no such file
			return err
		}
		hidden := strings.HasPrefix(file.Name(), ".") && path != name
		switch {
		case file.IsDir() && hidden:
			return fs.SkipDir
		case !file.IsDir() && !hidden && (path == name || slices.Contains(extensions, extension(path))):
			files = append(files, path)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("apply: %w", err)
	case len(files) == 0:
		return nil, fmt.Errorf("%s has no files %s", name, strings.Join(extensions, " "))
	}
	return files, nil
}

func readFile(ctx context.Context, name string, stdin io.Reader) (entries []*entry, err error) {
	in, err := cli.OpenInput(ctx, name, stdin)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := textfile.Decode(in)
	if err != nil {
		return nil, err
	}
	add := func(line int, e *entry) {
		e.at = fmt.Sprintf("%s:%d", name, line)
		entries = append(entries, e)
	}
	switch kind := extension(name); {
	case kind == ".csv" || kind == ".tsv":
		err = readCSV(text, name, add)
	case kind == ".yaml" || kind == ".yml":
		err = readYAML(text, add)
	case strings.HasPrefix(kind, ".json"), kind == ".ndjson", beginsObject(text):
		err = readJSON(text, add)
	default:
		err = readYAML(text, add)
	}
	return entries, err
}

func beginsObject(text *bufio.Reader) bool {
	head, _ := text.Peek(textfile.LookAhead) // what cannot be read fails when it is read
	return bytes.HasPrefix(bytes.TrimSpace(head), []byte("{"))
}

func readCSV(text io.Reader, name string, add func(int, *entry)) error {
	rows, err := sourcefile.Read(text, name, sourcefile.CSV)
	for _, row := range rows {
		e := &entry{source: row.Spec, err: row.Err}
		if e.err == nil {
			e.err = completeSource(e.source)
		}
		add(row.Line, e)
	}
	return err
}

func readJSON(text *bufio.Reader, add func(int, *entry)) error {
	lines := textfile.NewLines(text)
	for {
		object, err := lines.NextObject()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case object.Err != nil:
			add(object.Line, &entry{err: object.Err})
			continue
		}
		var value any
		decoder := json.NewDecoder(bytes.NewReader(object.Text))
		decoder.UseNumber()
		if err := decoder.Decode(&value); err != nil {
			add(object.Line, &entry{err: fmt.Errorf("is no JSON object: %w", textfile.PlainJSON(err))})
			continue
		}
		for _, one := range listed(value) {
			add(object.Line, parse(one))
		}
	}
}

// listed are the rules or holds of what queue rule list and hold list write in JSON, or the one object that value is.
func listed(value any) (all []any) {
	object, _ := value.(map[string]any) // else it has none
	for kind, name := range map[string]string{kindRule: "rules", kindHold: "holds"} {
		list, ok := object[name].([]any)
		if !ok {
			continue
		}
		for _, one := range list {
			if entry, ok := one.(map[string]any); ok {
				entry["kind"] = kind
			}
		}
		return list
	}
	return []any{value}
}

// readYAML reads documents, each of which is an object or a list of objects.
func readYAML(text io.Reader, add func(int, *entry)) error {
	for documents := yaml.NewDecoder(text); ; {
		var document yaml.Node
		switch err := documents.Decode(&document); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
		}
		objects := document.Content // of a document: its one node
		if len(objects) == 1 && objects[0].Kind == yaml.SequenceNode {
			objects = objects[0].Content
		}
		for _, object := range objects {
			var value any
			switch err := object.Decode(&value); {
			case err != nil:
				add(object.Line, &entry{err: errors.New(strings.TrimPrefix(err.Error(), "yaml: "))})
			case value != nil: // else the document is empty
				add(object.Line, parse(value))
			}
		}
	}
}

// parse makes an entry of an object. Without a kind it is a source, as source export writes it.
func parse(value any) *entry {
	object, ok := value.(map[string]any)
	if !ok {
		return &entry{err: errors.New("is no object")}
	}
	kind, given := object["kind"]
	if !given {
		kind = kindSource
	}
	delete(object, "kind")
	e := &entry{}
	switch kind {
	case kindSource:
		if spec, whole := object["spec"].(map[string]any); whole { // as source get writes it
			object = spec
		}
		e.source = &pb.SourceSpec{}
		if e.err = unmarshal(object, e.source); e.err == nil {
			e.err = completeSource(e.source)
		}
	case kindRule:
		e.rule = &pb.QueueRule{}
		if e.err = unmarshal(object, e.rule); e.err == nil {
			e.rule.By, e.rule.UpdateTime = "", nil
			e.rule.Pattern, e.rule.Queue = cli.QueuePattern(e.rule.GetPattern()), canonical.QueueName(e.rule.GetQueue())
			e.err = server.CheckQueueRule(e.rule)
		}
	case kindHold:
		e.hold = &pb.Hold{}
		if e.err = unmarshal(object, e.hold); e.err == nil {
			e.err = completeHold(e.hold)
		}
	default:
		return &entry{err: fmt.Errorf("kind is %v; say %s, %s or %s", kind, kindSource, kindRule, kindHold)}
	}
	if e.err != nil {
		e.err = fmt.Errorf("%s: %w", kind, e.err)
	}
	return e
}

// completeSource fills in an id that the file leaves out, as source import does.
func completeSource(spec *pb.SourceSpec) error {
	for _, seed := range spec.GetSeeds() {
		seed.Url, seed.Queue = canonical.WebAddress(seed.GetUrl()), canonical.QueueName(seed.GetQueue())
		if spec.GetId() == "" && seed.GetUrl() != "" {
			spec.Id = canonical.SourceID("", seed.GetUrl())
		}
	}
	if spec.GetId() == "" {
		return errors.New("there is neither an id nor a URL to make one from")
	}
	return nil
}

func completeHold(hold *pb.Hold) error {
	if hold.GetName() == "" {
		hold.Name = describe.DefaultHold
	}
	if hold.GetEffect() == pb.HoldEffect_HOLD_EFFECT_UNSPECIFIED {
		hold.Effect = pb.HoldEffect_HOLD_EFFECT_STOP_GRANTS
	}
	target := hold.GetTarget()
	if proto.Size(target) == 0 {
		return errors.New("there is no target; say everything, pool, source_id, queue, collector_id or collector_labels")
	}
	if target.GetQueue() != "" {
		target.Queue = cli.QueuePattern(target.GetQueue())
	}
	hold.CreateTime, hold.Etag = nil, ""
	return nil
}
