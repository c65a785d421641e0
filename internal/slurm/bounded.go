package slurm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/kubenergy/kubenergy/internal/energy/jsonscan"
)

// Limits of a response. 100,000 jobs use about 65 MiB of memory, and a response at the limits about 350 MiB.
const (
	maxEntries = 250_000   // jobs or nodes
	maxValue   = 1 << 20   // size in bytes of a job or node, or of another field of the response
	maxText    = 256 << 20 // total size in bytes of all retained strings
)

// list decodes the next value, which is a list with many entries, entry by entry.
type list func(*jsonscan.Stream) error

// listOf returns a list that appends its entries to all. size returns the size in bytes of the strings of an entry.
func listOf[T any](key string, all *[]T, size func(*T) int) list {
	text := 0
	return func(b *jsonscan.Stream) error {
		return b.Each('[', func() error {
			var entry T
			if err := b.Decode(&entry); err != nil {
				return err
			}
			*all = append(*all, entry)
			if text += size(&entry); text > maxText || len(*all) > maxEntries {
				return fmt.Errorf("the first %d %s have %d MiB of text, want at most %d with %d MiB", len(*all), key,
					text>>20, maxEntries, maxText>>20)
			}
			return nil
		})
	}
}

// readAnswer decodes the fields of a response by key into pointers and [list]s, and skips all other fields. It also
// returns the start of the response for error messages.
func readAnswer(body io.Reader, fields map[string]any) (start []byte, err error) {
	const shown = 300
	buffered := bufio.NewReader(body)
	start, _ = buffered.Peek(shown)
	start = bytes.Clone(start) // the buffer is reused
	b := jsonscan.NewStream(buffered, maxValue)
	return start, b.Each('{', func() error {
		key, err := b.Token()
		if err != nil {
			return err
		}
		switch into := fields[key.(string)].(type) {
		case nil:
			return b.Decode(&json.RawMessage{})
		case list:
			return into(b)
		default:
			return b.Decode(into)
		}
	})
}

func sizeOf(texts ...string) (n int) {
	const header = 16
	for _, s := range texts {
		n += header + len(s)
	}
	return n
}

func (j *Job) size() int {
	return sizeOf(j.Name, j.Account, j.User, j.Partition, j.Comment, j.AdminComment, j.Reason, j.Reservation,
		j.ArrayTasks, j.Tres, j.Hosts, j.Step.SLUID) + sizeOf(j.State...) + sizeOf(j.Flags...)
}

func (n *Node) size() int {
	return sizeOf(n.Name, n.Tres, n.TresUsed) + sizeOf(n.Features...) + sizeOf(n.State...) + sizeOf(n.StateFlags...) +
		sizeOf(n.Partitions...)
}
