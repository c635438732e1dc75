package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// checkOutput refuses a value of --output that is unknown.
func checkOutput(output string) error {
	if output != "table" && output != "json" {
		return usagef("--output %q: say table or json", output)
	}
	return nil
}

// show writes a reply, unless err says that there is none: as JSON for programs, else by people.
func (c *client) show(reply proto.Message, err error, people func()) error {
	switch {
	case err != nil:
		return err
	case c.json:
		return writeMessage(c.out, reply)
	}
	people()
	return nil
}

// writeMessage writes a message as JSON with the field names of the .proto files, every field that has a value or a
// default, and always the same white space.
func writeMessage(out io.Writer, message proto.Message) error {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(message)
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	indented.WriteByte('\n')
	_, err = indented.WriteTo(out)
	return err
}

// writeJSON writes what is no message, with the same white space.
func writeJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// note writes a line for people beside what a command shows.
func (c *client) note(format string, args ...any) {
	fmt.Fprintf(c.err, "waggle: "+format+"\n", args...)
}

// writeSample writes what a call does or would do, and the first ids of all that it concerns.
func writeSample(out io.Writer, text string, sample []string, all int) {
	fmt.Fprintln(out, text)
	for _, id := range sample {
		fmt.Fprintf(out, "  %s\n", plain(id))
	}
	if more := all - len(sample); more > 0 && len(sample) > 0 {
		fmt.Fprintf(out, "  and %s more\n", count(more))
	}
}
