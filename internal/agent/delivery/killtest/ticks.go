package killtest

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
)

var tickCount = regexp.MustCompile(`(?m)^kubenergy_agent_tick_duration_seconds_count\{[^}]*\} (\d+)$`)

// Ticks returns the number of ticks of the agent that listens on address, or 0 if it does not respond.
func Ticks(address string) int {
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0
	}
	match := tickCount.FindSubmatch(page)
	if match == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(match[1]))
	return n
}
