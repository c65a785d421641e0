// Command process is run as a pod by tests. It prints its arguments and files, serves a health page, and exits as
// configured.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	listen := flag.String("listen-address", "",
		"address of the health page and of /end, which exits with code 3")
	show := flag.String("show", "", "files to print, separated by commas")
	env := flag.String("env", "", "environment variables to print, separated by commas")
	after := flag.Duration("after", -1, "time after which the program exits")
	code := flag.Int("code", 0, "exit code of the program")
	stubborn := flag.Bool("stubborn", false, "ignore SIGTERM")
	flag.Parse()
	for _, path := range strings.Split(*show, ",") {
		if path != "" {
			text, err := os.ReadFile(path)
			fmt.Printf("file %s: %q %v\n", path, text, err)
		}
	}
	for _, name := range strings.Split(*env, ",") {
		fmt.Printf("env %s=%s\n", name, os.Getenv(name))
	}
	fmt.Println("args", flag.Args(), "pid", os.Getpid())
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	if *listen != "" {
		http.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
		http.HandleFunc("/end", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
		go func() { panic(http.ListenAndServe(*listen, nil)) }()
	}
	end := make(<-chan time.Time)
	if *after >= 0 {
		end = time.After(*after)
	}
	for {
		select {
		case <-end:
			os.Exit(*code)
		case <-term:
			fmt.Println("received SIGTERM")
			if !*stubborn {
				return
			}
		}
	}
}
