package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

const callPath = "/waggle.v1."

// overHTTP makes a client of HTTP/2 with one connection.
func (a *attacker) overHTTP() *http.Client {
	h2 := new(http.Protocols)
	h2.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{
		Protocols:   h2,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return a.dialTo(ctx, a.http) },
	}}
}

// post makes one call, in JSON.
func (a *attacker) post(client *http.Client, method string, body []byte, encoding string) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+a.http+callPath+method, bytes.NewReader(body))
	if err != nil {
		panic(err) // the address is wrong
	}
	req.Header.Set("Content-Type", "application/json")
	if encoding != "" {
		req.Header.Set("Content-Encoding", encoding)
	}
	if resp, err := client.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// httpPolls parks 200,000 fetches on 200 connections.
func (a *attacker) httpPolls() {
	for c := range 200 / a.scale {
		client := a.overHTTP()
		for i := range 1000 {
			body := fmt.Appendf(nil, `{"collector_id":"attack-%d-%d","session":"s","client_token":"t","pools":["nothing"],"wait":"30s"}`, c, i)
			go forever(func() { a.post(client, "DispatchService/FetchTask", body, "") })
		}
	}
}

// httpSlow begins requests of 4 MB on 2,000 connections, and never ends them.
func (a *attacker) httpSlow() {
	part := bytes.Repeat([]byte(" "), 4<<20-1)
	for range 2000 / a.scale {
		go forever(func() {
			conn, err := a.dialTo(context.Background(), a.http)
			if err != nil {
				return
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST %sTaskService/SubmitTasks HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", callPath, a.http, len(part)+1)
			_, _ = conn.Write(part)
			_, _ = io.Copy(io.Discard, conn) // until the dispatcher closes it
		})
	}
}

// httpPacked sends requests that gzip has packed a thousandfold on 50 connections, 20 at once on each: half of them of the
// size that a request may have, half of 100 MB.
func (a *attacker) httpPacked() {
	var bodies [2][]byte
	for i, size := range []int{4<<20 - 100, 100 << 20} {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err := io.WriteString(w, `{"items":[{"source_id":"none","url":"`+strings.Repeat("a", size)+`"}]}`)
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			panic(err) // a buffer takes everything
		}
		bodies[i] = packed.Bytes()
	}
	for range max(50/a.scale, 1) {
		client := a.overHTTP()
		for i := range 20 {
			go forever(func() { a.post(client, "TaskService/SubmitTasks", bodies[i%2], "gzip") })
		}
	}
}
