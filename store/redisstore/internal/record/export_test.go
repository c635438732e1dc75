package record

import "github.com/waggle-crawl/waggle/dispatch"

// EncodeBody packs the body of a record.
func EncodeBody(s *dispatch.Submission) (body []byte, core, size int) { return appendBody(nil, s) }

// DecodeBody reads the body of a record.
func DecodeBody(body []byte) (dispatch.Task, error) {
	var t dispatch.Task
	err := decodeBody(body, &t)
	return t, err
}

// DecodeHistory reads a last error and attempts.
func DecodeHistory(packed string) (dispatch.Task, error) {
	var t dispatch.Task
	err := decodeHistory(&t, packed)
	return t, err
}
