package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

const contentJSON = "application/json"

func encodeJSON(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding the response: %w", err)
	}
	return append(body, '\n'), nil
}

// writeJSON writes v as a JSON response.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := encodeJSON(v)
	if err == nil {
		write(w, status, contentJSON, body)
	}
	return err
}

func write(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client disconnected
}

// writeTagged writes v as a JSON response with an ETag, or status 304 if the client already has this version. Only
// the client itself may cache the response, and it has to revalidate it for every request.
func writeTagged(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := encodeJSON(v)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	const length = 16 // in bytes; truncation is safe because a collision is of no use to an attacker
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:length])+`"`)
	w.Header().Set("Cache-Control", "private, no-cache")
	w.Header().Set("Content-Type", contentJSON)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	return nil
}

// some returns list, or an empty slice if list is nil, so that it is encoded as [] instead of null in JSON.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
