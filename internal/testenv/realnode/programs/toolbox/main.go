// Toolbox is the only program in the containers of tests: a server, and the commands that kubectl runs.
package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if name == "toolbox" && len(args) > 0 {
		name, args = args[0], args[1:]
	}
	run, known := map[string]func([]string) error{
		"pause": pause, "serve": serve, "echo": echo, "cat": cat, "test": test, "tar": archive, "hostname": hostname, "get": get, "write": write,
	}[name]
	err := fmt.Errorf("there is no command %q", name)
	if known {
		err = run(args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func pause([]string) error {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
	return nil
}

// serve answers with the name of the pod and logs each request, until it is told to end.
func serve([]string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("request", r.URL.Path)
		fmt.Fprintf(w, "hello from %s\n", name)
	})}
	go func() {
		_ = pause(nil)
		_ = server.Close()
	}()
	fmt.Println("serving")
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// get prints what a URL answers.
func get(args []string) error {
	if len(args) != 1 {
		return errors.New("get needs a URL")
	}
	client := &http.Client{Timeout: 5 * time.Second}
	response, err := client.Get(args[0])
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}

// write writes its input to a file.
func write(args []string) error {
	if len(args) != 1 {
		return errors.New("write needs a file")
	}
	content, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], content, 0o644)
}

func hostname([]string) error {
	name, err := os.Hostname()
	fmt.Println(name)
	return err
}

func echo(args []string) error {
	_, err := fmt.Println(strings.Join(args, " "))
	return err
}

// cat copies files, or its input.
func cat(args []string) error {
	if len(args) == 0 {
		_, err := io.Copy(os.Stdout, os.Stdin)
		return err
	}
	for _, name := range args {
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if _, err := os.Stdout.Write(content); err != nil {
			return err
		}
	}
	return nil
}

// test knows -d.
func test(args []string) error {
	if len(args) != 2 || args[0] != "-d" {
		return fmt.Errorf("test: unknown arguments %q", args)
	}
	info, err := os.Stat(args[1])
	if err == nil && !info.IsDir() {
		err = errors.New("it is not a directory")
	}
	return err
}

// archive knows what `kubectl cp` uses: `tar cf - FILE` and `tar -xmf - -C DIR`.
func archive(args []string) error {
	if len(args) < 3 || args[1] != "-" {
		return fmt.Errorf("tar: unknown arguments %q", args)
	}
	if strings.HasPrefix(strings.TrimPrefix(args[0], "-"), "c") {
		return pack(args[2])
	}
	if len(args) != 4 || args[2] != "-C" {
		return fmt.Errorf("tar: unknown arguments %q", args)
	}
	return unpack(args[3])
}

func pack(root string) error {
	out := tar.NewWriter(os.Stdout)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		header, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		header.Name = strings.TrimPrefix(path, "/")
		if err := out.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		content, err := os.Open(path)
		if err != nil {
			return err
		}
		defer content.Close()
		_, err = io.Copy(out, content)
		return err
	})
	if err != nil {
		return err
	}
	return out.Close()
}

func unpack(dir string) error {
	in := tar.NewReader(os.Stdin)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, header.Name)
		if header.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		file, err := os.Create(path)
		if err != nil {
			return err
		}
		if _, err := io.Copy(file, in); err != nil {
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
}
