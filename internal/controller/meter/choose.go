package meter

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

// choose reads the wanted channels of a device. It returns an error if any of them cannot be read, because a part
// of a node's power would be misleading. If wanted is empty, the device must have a single channel.
func choose[T any](wanted []string, found map[string]T,
	read func(name string, from T) (sample, error),
) ([]sample, error) {
	if len(wanted) == 0 {
		if len(found) != 1 {
			return nil, dial.Refuse(dial.ReasonMissing, "%s: configure the channels of the node", have(found))
		}
		wanted = slices.Collect(maps.Keys(found))
	}
	samples := make([]sample, 0, len(wanted))
	for _, name := range wanted {
		from, ok := found[name]
		if !ok {
			return nil, dial.Refuse(dial.ReasonMissing, "unknown channel %q, %s", name, have(found))
		}
		s, err := read(name, from)
		if err != nil {
			if e, ok := errors.AsType[*dial.Error](err); ok {
				return nil, dial.Refuse(e.Reason, "channel %s: %w", name, e.Err)
			}
			return nil, err
		}
		s.channel = name
		samples = append(samples, s)
	}
	return samples, nil
}

// have lists the channels of a device for error messages.
func have[T any](found map[string]T) string {
	if len(found) == 0 {
		return "the device has no energy channel"
	}
	names := slices.Sorted(maps.Keys(found))
	if len(names) > maxChannels {
		names = append(names[:maxChannels], "…")
	}
	text := strings.Join(names, ", ")
	return "the device has the channels " + text[:min(len(text), maxText)]
}
