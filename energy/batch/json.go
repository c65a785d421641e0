package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/kubenergy/kubenergy/energy"
)

// What an acknowledgement may hold. Names beyond are left out: whether energy was booked does not depend on them.
const (
	MaxAckBytes = 1 << 20
	maxNamed    = 10_000 // pods, and containers of one
)

// Encode returns b as it travels.
func Encode(b *Batch) ([]byte, error) {
	out := *b
	if out.Shares == nil {
		out.Shares = []energy.Share{}
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // paths of control groups hold & and <
	if err := enc.Encode(out); err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	return buf.Bytes(), nil
}

// Decode reads a batch and validates it. It is strict: a field that is not known may change the meaning of the others.
func Decode(data []byte) (*Batch, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("decoding batch: %d bytes: at most %d", len(data), MaxBytes)
	}
	b, ok := scan(data)
	if !ok {
		var err error
		if b, err = decode(data); err != nil {
			return nil, err
		}
	}
	b.Start, b.End = b.Start.UTC(), b.End.UTC()
	if err := b.Validate(); err != nil {
		return nil, fmt.Errorf("validating batch: %w", err)
	}
	return b, nil
}

// decode reads a batch in any form that JSON allows, and says what is wrong with it.
func decode(data []byte) (*Batch, error) {
	type plain Batch
	b := new(Batch)
	// Shares are read one by one: a few bytes of JSON each could be made to cost a hundred times that in memory.
	wire := struct {
		*plain
		Shares json.RawMessage `json:"shares"`
	}{plain: (*plain)(b)}
	if err := decodeAll(data, &wire); err != nil {
		return nil, fmt.Errorf("decoding batch: %w", err)
	}
	shares, err := decodeShares(wire.Shares)
	if err != nil {
		return nil, fmt.Errorf("decoding shares: %w", err)
	}
	if err := checkKeys(data); err != nil {
		return nil, fmt.Errorf("decoding batch: %w", err)
	}
	b.Shares = shares
	return b, nil
}

// keys are the fields of a batch and of what is in it. Those that are called alike mean the same.
var keys = func() map[string]uint {
	numbers := map[string]uint{}
	for i, key := range []string{
		"version", "stream", "node", "boot", "epoch", "first", "last", "parent", "host", "vm",
		"start", "end", "startSinceBoot", "endSinceBoot", "unmeasured", "source", "quality", "idlePolicy",
		"measured", "idle", "platform", "unknown", "shares", "id", "dynamic", "cpu", "ended",
	} {
		numbers[key] = uint(i)
	}
	return numbers
}()

// checkKeys refuses keys that are there twice in an object, and those that are not written as they should be, with
// other capitals or escapes: encoding/json takes them, other readers take something else. The data is that of a batch
// otherwise.
func checkKeys(data []byte) error {
	var seen [8]uint32 // by depth; a batch has a depth of 3
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			if depth++; depth == len(seen) {
				return errors.New("nested too deeply")
			}
			seen[depth] = 0
		case '}', ']':
			depth--
		case '"':
			text := data[i+1 : i+1+textLength(data[i+1:])]
			i += len(text) + 1
			if rest := bytes.TrimLeft(data[i+1:], " \t\r\n"); len(rest) == 0 || rest[0] != ':' {
				continue
			}
			number, known := keys[string(text)]
			if bit := uint32(1) << number; !known || seen[depth]&bit != 0 {
				return fmt.Errorf("key %.40q is not known, or there twice", text)
			}
			seen[depth] |= 1 << number
		}
	}
	return nil
}

// textLength returns how long a text is in JSON, up to its closing quote.
func textLength(data []byte) int {
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			return i
		case '\\':
			i++
		}
	}
	return len(data)
}

func decodeAll(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}

func decodeShares(data json.RawMessage) ([]energy.Share, error) {
	if len(data) == 0 || string(data) == "null" {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if open, err := dec.Token(); err != nil || open != json.Delim('[') {
		return nil, errors.New("not a list")
	}
	shares := []energy.Share{}
	for dec.More() {
		if len(shares) == MaxShares {
			return nil, fmt.Errorf("more than %d", MaxShares)
		}
		var s energy.Share
		if err := dec.Decode(&s); err != nil {
			return nil, err
		}
		shares = append(shares, s)
	}
	return shares, nil
}

// DecodeAck reads an acknowledgement. Fields that it does not know are left out, so that a central unit may be newer
// than its agents.
func DecodeAck(data []byte) (*Ack, error) {
	if len(data) > MaxAckBytes {
		return nil, fmt.Errorf("decoding acknowledgement: %d bytes: at most %d", len(data), MaxAckBytes)
	}
	a := new(Ack)
	if err := json.Unmarshal(data, a); err != nil {
		return nil, fmt.Errorf("decoding acknowledgement: %w", err)
	}
	if err := checkText("epoch", a.Epoch, MaxName); err != nil {
		return nil, fmt.Errorf("decoding acknowledgement: %w", err)
	}
	if len(a.Names) > maxNamed {
		a.Names = nil
	}
	for pod, names := range a.Names {
		if !names.valid(pod) {
			delete(a.Names, pod)
		}
	}
	return a, nil
}

func (n *Names) valid(pod string) bool {
	if errors.Join(checkText("pod UID", pod, MaxName), checkText("namespace", n.Namespace, MaxName),
		checkText("pod", n.Pod, MaxName)) != nil ||
		len(n.Containers) > maxNamed {
		return false
	}
	for id, name := range n.Containers {
		if errors.Join(checkText("container ID", id, MaxName), checkText("container", name, MaxName)) != nil {
			return false
		}
	}
	return true
}
