package app

import (
	"cmp"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/scheduler/live"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
)

// endpoints contains the addresses and credentials of the controller, for live power and for recording decisions.
type endpoints struct{ live, record apiclient.Options }

// noRecords is the URL that disables recording if a controller is configured for live power.
const noRecords = "none"

func (e *endpoints) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&e.record.URL, "kubenergy-record-url", "", "`URL` of the controller that records decisions "+
		"and their inputs (default: the URL for live watts; \"none\" disables recording)")
	fs.StringVar(&e.record.TokenFile, "kubenergy-record-token-file", "",
		"`file` with the token for this URL (default: the token for live watts)")
	fs.StringVar(&e.record.CAFile, "kubenergy-record-ca-file", "",
		"`file` with trusted certificates for this URL (default: those for live watts)")
	fs.StringVar(&e.live.URL, "kubenergy-live-url", "",
		"`URL` of the controller that provides the current power of nodes; scheduling continues without a response")
	fs.StringVar(&e.live.TokenFile, "kubenergy-live-token-file", "",
		"`file` with the token for this URL, read before each request")
	fs.StringVar(&e.live.CAFile, "kubenergy-live-ca-file", "",
		"`file` with trusted certificates for this URL, read before each request (default: those of the system)")
}

// feed returns the feed of live power, or nil if no URL is configured. It returns an error only for invalid
// options, because the scheduler must also start if the controller is not reachable.
func (e *endpoints) feed(log *slog.Logger) (*live.Feed, error) {
	o := e.live
	if o.URL == "" {
		return nil, nil
	}
	o.UserAgent = userAgent
	return live.New(o, log)
}

// recorder returns the recorder of decisions, or nil if no URL is configured. Options default to those for live
// power.
func (e *endpoints) recorder(log *slog.Logger) (*record.Recorder, error) {
	o := e.record
	if o.URL == "" || o.URL == e.live.URL {
		o.TokenFile, o.CAFile = cmp.Or(o.TokenFile, e.live.TokenFile), cmp.Or(o.CAFile, e.live.CAFile)
	}
	o.URL, o.UserAgent = cmp.Or(o.URL, e.live.URL), userAgent
	if o.URL == "" || o.URL == noRecords {
		return nil, nil
	}
	return record.New(o, log)
}

const userAgent = "kubenergy-scheduler"
