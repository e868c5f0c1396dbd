/* SPDX-License-Identifier: MIT
 *
 * A client of PyTorch 1.13 that watches a key, which its Python interface cannot: makes, changes
 * and deletes it, and must be told of each change before it makes the next.
 *   watch client PORT ...
 */
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

namespace {

using optional_text = c10::optional<std::string>;

/* What the callback, which another thread calls, has been told last. */
class Told {
  public:
    void hear(const optional_text &was, const optional_text &is)
    {
        std::lock_guard<std::mutex> hold(lock);
        last = was.value_or("nothing") + ", then " + is.value_or("nothing");
        heard.notify_all();
    }

    bool comes(const std::string &change)
    {
        std::unique_lock<std::mutex> hold(lock);
        if (heard.wait_for(hold, std::chrono::seconds(60), [&] { return last == change; }))
            return true;
        std::fprintf(stderr, "told \"%s\", not \"%s\"\n", last.c_str(), change.c_str());
        return false;
    }

  private:
    std::mutex lock;
    std::condition_variable heard;
    std::string last;
};

} // namespace

int main(int argc, char **argv)
{
    Told told;
    c10d::TCPStoreOptions options;
    bool is_right;

    options.port = static_cast<std::uint16_t>(argc > 2 ? std::atoi(argv[2]) : 0);
    options.waitWorkers = false;
    c10d::TCPStore store("127.0.0.1", options);
    store.watchKey("k", [&](optional_text was, optional_text is) { told.hear(was, is); });
    store.add("another", 1);
    store.set("k", {'v'});
    is_right = told.comes("nothing, then v");
    store.set("k", {'w', 'w'});
    is_right = is_right && told.comes("v, then ww");
    store.deleteKey("k");
    is_right = is_right && told.comes("ww, then nothing");
    store.add("k", 7);
    is_right = is_right && told.comes("nothing, then 7");
    return is_right ? 0 : 1;
}
