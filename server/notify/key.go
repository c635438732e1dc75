package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Limits of keys, as Standard Webhooks has them.
const (
	keyPrefix   = "whsec_"
	shortestKey = 24 // bytes
	longestKey  = 64
)

// readKeys reads the keys of a file, one a line: while a key is replaced there are two of them.
func readKeys(file string) ([][]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the keys of notices: %w", err)
	}
	var keys [][]byte
	for number, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(line, keyPrefix))
		if !strings.HasPrefix(line, keyPrefix) || err != nil || len(key) < shortestKey || len(key) > longestKey {
			return nil, fmt.Errorf("line %d of %s is no key: it must be %s and the base64 of %d to %d bytes", number+1, file, keyPrefix, shortestKey, longestKey)
		}
		keys = append(keys, key)
	}
	if keys == nil {
		return nil, fmt.Errorf("%s has no key", file)
	}
	return keys, nil
}

// signature is the header of a message, with a signature by each key.
func signature(keys [][]byte, id string, at time.Time, body []byte) string {
	var all []string
	for _, key := range keys {
		mac := hmac.New(sha256.New, key)
		_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, seconds(at), body) // a hash takes everything
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(all, " ")
}

func seconds(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
