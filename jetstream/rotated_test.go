package jetstream

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nkeys"
)

// An nkey, or credentials, that were changed on disk are used from the next connection on, be it of the same client or of another one.
func TestRotatedKeys(t *testing.T) {
	for _, creds := range []bool{false, true} {
		t.Run(fmt.Sprintf("creds %t", creds), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "key")
			rotate := func() (key nkeys.KeyPair, jwt string) {
				key, err := nkeys.CreateUser()
				if err != nil {
					t.Fatal(err)
				}
				seed, _ := key.Seed()
				public, _ := key.PublicKey()
				text := string(seed)
				if creds {
					jwt = "jwt-of-" + public
					text = "-----BEGIN NATS USER JWT-----\n" + jwt + "\n------END NATS USER JWT------\n-----BEGIN USER NKEY SEED-----\n" + text + "\n------END USER NKEY SEED------\n"
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				return key, jwt
			}
			key, jwt := rotate()
			bubble(t, func(t *testing.T) {
				w := &fakeWire{take: func(*fakeWire, string, string, []byte) {}, cfg: Config{NkeySeedFile: file}}
				if creds {
					w.cfg = Config{CredsFile: file}
				}
				c, err := w.client()
				if err != nil {
					t.Fatal(err)
				}
				defer w.set(true)
				defer hangUp(c)
				uses := func(when string) {
					t.Helper()
					time.Sleep(time.Minute)
					synctest.Wait()
					var hello struct{ JWT, Nkey, Sig string }
					w.mu.Lock()
					defer w.mu.Unlock()
					if err := json.Unmarshal([]byte(w.hello), &hello); err != nil {
						t.Fatal(err)
					}
					sig, err := base64.RawURLEncoding.DecodeString(hello.Sig)
					if err != nil || key.Verify([]byte("n"), sig) != nil {
						t.Errorf("%s: signed with another key", when)
					}
					if public, _ := key.PublicKey(); hello.JWT != jwt || !creds && hello.Nkey != public {
						t.Errorf("%s: %+v", when, hello)
					}
				}
				uses("at first")
				key, jwt = rotate()
				w.set(true)
				w.set(false)
				uses("after a reconnect")
				key, jwt = rotate()
				w.send([]byte("-ERR 'gone'\r\n"))
				uses("over another client")
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
				w.set(true)
				w.set(false)
				time.Sleep(time.Minute)
				key, jwt = rotate()
				uses("after there was none")
			})
		})
	}
}
