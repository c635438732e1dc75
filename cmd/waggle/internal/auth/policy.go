package auth

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/server/auth"
)

const (
	// policyMode is that of a new policy file. It has no secrets, but names who may do what.
	policyMode = 0o600
	// yamlIndent is the indent of what is written.
	yamlIndent = 2
)

// readPolicy reads a policy file; if there is none the policy is empty.
func readPolicy(path string) (*auth.Policy, []byte, error) {
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	policy, err := auth.Parse(content)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return policy, content, nil
}

// edit changes a policy file as a whole or not at all. Its comments and its order stay. Edits of one file wait for each
// other. before is called when the new content is known to be a policy, and its error leaves the file as it is.
func edit(path string, change func(*auth.Policy, *document) error, before func() error) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	unlock, err := lockDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	policy, content, err := readPolicy(path)
	if err != nil {
		return err
	}
	doc, err := parseDocument(content)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := change(policy, doc); err != nil {
		return err
	}
	if content, err = doc.bytes(); err != nil {
		return err
	}
	if _, err := auth.Parse(content); err != nil {
		return cli.Usagef("%w", err)
	}
	if err := before(); err != nil {
		return err
	}
	return cli.ReplaceFile(path, content, policyMode)
}

// document is the YAML of a policy, with its comments.
type document struct {
	root   *yaml.Node // the mapping of the fields
	top    yaml.Node  // what encloses it
	prefix []byte     // a file of comments alone
}

func parseDocument(content []byte) (*document, error) {
	d := &document{}
	if err := yaml.Unmarshal(content, &d.top); err != nil {
		return nil, err
	}
	if d.top.Kind == 0 || isNull(d.top.Content[0]) {
		d.prefix = content
		d.top = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode, Tag: "!!map"}}}
	}
	d.root = d.top.Content[0]
	return d, nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func (d *document) bytes() ([]byte, error) {
	var b bytes.Buffer
	b.Write(d.prefix)
	if len(d.prefix) > 0 && d.prefix[len(d.prefix)-1] != '\n' {
		b.WriteByte('\n')
	}
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(yamlIndent)
	if err := errors.Join(encoder.Encode(&d.top), encoder.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// list is the list of a field; it is made if there is none.
func (d *document) list(field string) *yaml.Node {
	for i := 0; i+1 < len(d.root.Content); i += 2 {
		if d.root.Content[i].Value != field {
			continue
		}
		list := d.root.Content[i+1]
		if isNull(list) {
			*list = yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", HeadComment: list.HeadComment, LineComment: list.LineComment, FootComment: list.FootComment}
		}
		return list
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	d.root.Content = append(d.root.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: field}, list)
	return list
}

// add appends a value to the list of a field.
func (d *document) add(field string, value any) error {
	item := new(yaml.Node)
	if err := item.Encode(value); err != nil {
		return err
	}
	list := d.list(field)
	list.Style &^= yaml.FlowStyle // "tokens: []" becomes lines
	list.Content = append(list.Content, item)
	return nil
}

// removeAt takes an item out of the list of a field. What stands behind it as a comment stays.
func (d *document) removeAt(field string, i int) {
	list := d.list(field)
	if foot := list.Content[i].FootComment; foot != "" && i > 0 {
		before := list.Content[i-1]
		before.FootComment = joinComments(before.FootComment, foot)
	}
	list.Content = append(list.Content[:i], list.Content[i+1:]...)
}

func joinComments(a, b string) string {
	if a == "" {
		return b
	}
	return a + "\n\n" + b
}

// set gives an item of a list of a field a new value for one of its keys.
func (d *document) set(field string, i int, key string, value any) error {
	node := new(yaml.Node)
	if err := node.Encode(value); err != nil {
		return err
	}
	item := d.list(field).Content[i]
	for k := 0; k+1 < len(item.Content); k += 2 {
		if item.Content[k].Value == key {
			node.LineComment = item.Content[k+1].LineComment
			item.Content[k+1] = node
			return nil
		}
	}
	item.Content = append(item.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, node)
	return nil
}
