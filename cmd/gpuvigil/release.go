package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"gpuvigil/internal/server"
)

func addRelease(app *kingpin.Application) (string, command) {
	cmd := app.Command("release", "Make the running agent let go of the NVIDIA driver for a while, so that it can be replaced or a GPU reset.")
	forTime := length(cmd.Flag("for", "How long; 0s takes the driver up again at once.").Default("15m"), 0)
	state := addStateDir(cmd)
	return cmd.FullCommand(), func(ctx context.Context, p *program) error {
		client, err := agentClient(*state)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		r, err := client.Release(ctx, *forTime)
		if err != nil {
			return err
		}
		if r.Until.IsZero() {
			_, err = fmt.Fprintln(p.out, "The agent takes the driver up again.")
			return err
		}
		_, err = fmt.Fprintf(p.out, "The agent holds no device file of the driver until %s.\n", timeOfDay(r.Until))
		return err
	}
}

// agentClient returns a client of the agent that runs with the state directory, or of the
// cluster role if no agent does.
func agentClient(flag string) (*server.Client, error) {
	dir, err := stateDir(flag)
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, socketName)
	if _, err := os.Stat(socket); errors.Is(err, fs.ErrNotExist) {
		// The cluster role has a state directory too, and answers what it can.
		if role := filepath.Join(dir, fleetSocket); exists(role) {
			socket = role
		}
	}
	return server.NewClient(socket), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
