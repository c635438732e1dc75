package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/waggle-crawl/waggle/cmd/waggle/internal/cli"
	"github.com/waggle-crawl/waggle/cmd/waggle/internal/human"
)

// CheckOutput refuses a value of --output that is unknown.
func CheckOutput(output string) error {
	if output != "table" && output != "json" {
		return cli.Usagef("--output %q: say table or json", output)
	}
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

// WriteJSON writes what is no message, with the same white space.
func WriteJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// WriteSample writes what a call does or would do, and the first ids of all that it concerns.
func WriteSample(out io.Writer, text string, sample []string, all int) {
	fmt.Fprintln(out, text)
	for _, id := range sample {
		fmt.Fprintf(out, "  %s\n", human.Plain(id))
	}
	if more := all - len(sample); more > 0 && len(sample) > 0 {
		fmt.Fprintf(out, "  and %s more\n", human.Count(more))
	}
}
