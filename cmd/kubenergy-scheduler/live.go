package main

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/kubenergy/kubenergy/scheduler/live"
)

func (e *endpoint) addLiveFlags(fs *pflag.FlagSet) {
	fs.StringVar(&e.url, "kubenergy-live-url", e.url,
		"`URL` of the central unit that is asked what nodes draw just now; scheduling goes on without an answer")
	fs.StringVar(&e.tokenFile, "kubenergy-live-token-file", e.tokenFile,
		"`file` with the token for it, read before each request")
	fs.StringVar(&e.caFile, "kubenergy-live-ca-file", e.caFile,
		"`file` with certificates to trust for it, read before each request (default: the system's)")
}

// live returns what is told of live watts, nil if nobody is asked. It never keeps the scheduler from starting but for
// options that make no sense.
func (s *shared) live(ctx context.Context) (*live.Feed, error) {
	o := &s.options.live
	if o.url == "" {
		return nil, nil
	}
	feed, err := live.New(live.Config{URL: o.url, TokenFile: o.tokenFile, CAFile: o.caFile, Log: s.log})
	if err != nil {
		return nil, err
	}
	s.run(ctx, "live watts", feed.Run)
	return feed, nil
}
