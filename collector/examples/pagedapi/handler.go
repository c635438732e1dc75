package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/waggle-crawl/waggle/collector"
)

// maxPages bounds a list that never ends.
const maxPages = 10_000

// page is what the API answers: items, and the cursor of the next page, empty at the end.
type page struct {
	Items []json.RawMessage `json:"items"`
	Next  string            `json:"next"`
}

// pages is a handler that reads a list to its end. A task's URL is that of the list.
type pages struct {
	client *http.Client
	store  *lines
	pause  time.Duration // between two pages
}

// Handle reads page after page. It sets the cursor after it has kept a page, so that the next attempt repeats at most one.
func (p *pages) Handle(ctx context.Context, t *collector.Task) (collector.Succeeded, error) {
	cursor, bytes := string(t.Cursor), int64(0)
	for range maxPages {
		got, n, err := p.fetch(ctx, t.URL, cursor)
		if err != nil {
			return collector.Succeeded{}, err
		}
		bytes += n
		if err := p.store.keep(t, cursor, got.Items); err != nil {
			return collector.Succeeded{}, &collector.Failed{Reason: collector.ReasonDisk, Message: err.Error()}
		}
		if got.Next == "" {
			return collector.Succeeded{HTTPStatus: http.StatusOK, Bytes: bytes}, nil
		}
		// The queue's delay is between tasks: within one, waiting is the handler's own duty.
		select {
		case <-time.After(p.pause):
		case <-ctx.Done():
			return collector.Succeeded{}, context.Cause(ctx)
		}
		cursor = got.Next
		if err := t.SetCursor([]byte(cursor)); err != nil {
			return collector.Succeeded{}, err
		}
	}
	return collector.Succeeded{}, &collector.Failed{
		Reason: collector.ReasonTooLarge, Message: fmt.Sprintf("the list has more than %d pages", maxPages), Permanent: true,
	}
}

func (p *pages) fetch(ctx context.Context, list, cursor string) (got page, bytes int64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, list, http.NoBody)
	if err != nil {
		return got, 0, &collector.Failed{Reason: collector.ReasonBadRequest, Message: err.Error(), Permanent: true}
	}
	if cursor != "" {
		query := request.URL.Query()
		query.Set("cursor", cursor)
		request.URL.RawQuery = query.Encode()
	}
	reply, err := p.client.Do(request)
	if err != nil {
		return got, 0, err
	}
	defer func() { _ = reply.Body.Close() }() // all of it has been read, or an error is returned already
	if reply.StatusCode != http.StatusOK {
		return got, 0, &collector.Failed{Reason: reasonOf(reply.StatusCode), HTTPStatus: reply.StatusCode, Message: reply.Status}
	}
	decoder := json.NewDecoder(http.MaxBytesReader(nil, reply.Body, 16<<20))
	if err := decoder.Decode(&got); err != nil {
		return got, 0, &collector.Failed{Reason: collector.ReasonParse, HTTPStatus: reply.StatusCode, Message: err.Error()}
	}
	return got, decoder.InputOffset(), nil
}

// reasonOf separates failures of the list, which spend an attempt, from those of the site, which do not.
func reasonOf(status int) collector.Reason {
	switch {
	case status == http.StatusTooManyRequests:
		return collector.ReasonThrottled
	case status >= http.StatusInternalServerError:
		return collector.ReasonServerError
	case status == http.StatusNotFound:
		return collector.ReasonNotFound
	}
	return collector.ReasonClientError
}
