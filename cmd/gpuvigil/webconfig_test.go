package main

import (
	"log/slog"
	"os"
	"testing"
	"time"
)

// Whoever takes the users out of the web configuration must not open page and API
// to everybody.
func TestAuthenticationFollowsTheFile(t *testing.T) {
	path := file(t, "basic_auth_users:\n  ops: $2y$10$abcdefghijklmnopqrstuuW1i2Ygdkei2Pnl8vTnKMeCz1qmbmGMC\n")
	c, err := openWebConfig(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if !c.Authenticated() {
		t.Fatal("a file with users does not count as authentication")
	}
	write := func(content string, later time.Duration) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(later)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write("{}\n", time.Minute)
	if c.Authenticated() {
		t.Error("the users are gone, page and API are still served to everybody")
	}
	write("basic_auth_users: {ops: x}\n", 2*time.Minute)
	if !c.Authenticated() {
		t.Error("users came back and are not seen")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if c.Authenticated() {
		t.Error("the file is gone, page and API are still served to everybody")
	}
	if none, err := openWebConfig("", slog.New(slog.DiscardHandler)); err != nil || none.Authenticated() {
		t.Errorf("no file: authenticated %v, error %v", none.Authenticated(), err)
	}
}
