// librdkafka through its C++ API. It writes and reads with a login, and lacks all other operations.
// The lines of JSON are described in tests/clients/python/serving.py.

#include <librdkafka/rdkafkacpp.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

using nlohmann::json;

namespace {

const int kWaitMs = 60'000;
const int64_t kTokenMs = 3'000'000;
const size_t kDigestFrom = 1000;
const std::string kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string decode(const std::string &text) {
  std::string data;
  int bits = 0, count = 0;
  for (char letter : text) {
    size_t at = kAlphabet.find(letter);
    if (at == std::string::npos) break;
    bits = bits << 6 | static_cast<int>(at);
    if ((count += 6) >= 8) data.push_back(static_cast<char>(bits >> (count -= 8) & 0xff));
  }
  return data;
}

json shown(const void *bytes, size_t size) {
  if (bytes == nullptr) return nullptr;
  if (size > kDigestFrom) throw std::runtime_error("lacking: digests");
  const auto *data = static_cast<const unsigned char *>(bytes);
  std::string text;
  for (size_t at = 0; at < size; at += 3) {
    int word = data[at] << 16 | (at + 1 < size ? data[at + 1] << 8 : 0) | (at + 2 < size ? data[at + 2] : 0);
    for (size_t n = 0; n < 4; ++n) text.push_back(n <= size - at ? kAlphabet[word >> (18 - 6 * n) & 63] : '=');
  }
  return text;
}

std::string content(const std::string &path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Why a login was refused: the client repeats it without end.
class Refusals : public RdKafka::EventCb {
 public:
  void event_cb(RdKafka::Event &event) override {
    bool is_refusal = event.err() == RdKafka::ERR__AUTHENTICATION || event.err() == RdKafka::ERR__SSL ||
                      event.str().find("SSL alert") != std::string::npos;
    if (event.type() == RdKafka::Event::EVENT_ERROR && is_refusal && first_.empty())
      first_ = RdKafka::err2str(event.err()) + ": " + event.str();
  }
  void check() const {
    if (!first_.empty()) throw std::runtime_error(first_);
  }

 private:
  std::string first_;
};

class Token : public RdKafka::OAuthBearerTokenRefreshCb {
 public:
  explicit Token(std::string path) : path_(std::move(path)) {}
  void oauthbearer_token_refresh_cb(RdKafka::Handle *handle, const std::string &) override {
    auto now = std::chrono::system_clock::now().time_since_epoch();
    int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
    std::string error;
    handle->oauthbearer_set_token(content(path_), now_ms + kTokenMs, "client", {}, error);
  }

 private:
  std::string path_;
};

class Delivery : public RdKafka::DeliveryReportCb {
 public:
  void dr_cb(RdKafka::Message &message) override {
    if (message.err() != RdKafka::ERR_NO_ERROR) error = message.errstr();
    offsets.push_back(message.offset());
  }
  std::string error;
  std::vector<int64_t> offsets;
};

class Login {
 public:
  Login(const json &login, const json &more) : token_(login.value("token", "")) {
    conf_.reset(RdKafka::Conf::create(RdKafka::Conf::CONF_GLOBAL));
    set("bootstrap.servers", login["bootstrap"]);
    set("security.protocol", login["protocol"]);
    set("ssl.ca.location", login["trusted"]);
    if (login.contains("identity")) {
      set("ssl.key.location", login["identity"]);
      set("ssl.certificate.location", login["identity"]);
    }
    if (login.contains("mechanism")) set("sasl.mechanism", login["mechanism"]);
    if (login.contains("username")) set("sasl.username", login["username"]);
    if (login.contains("password")) set("sasl.password", login["password"]);
    for (const auto &[name, value] : more.items()) set(name, value);
    std::string error;
    conf_->set("event_cb", &refusals, error);
    if (login.contains("token")) conf_->set("oauthbearer_token_refresh_cb", &token_, error);
  }
  RdKafka::Conf *conf() { return conf_.get(); }
  Refusals refusals;

 private:
  void set(const std::string &name, const std::string &value) {
    std::string error;
    if (conf_->set(name, value, error) != RdKafka::Conf::CONF_OK) throw std::runtime_error(error);
  }
  Token token_;
  std::unique_ptr<RdKafka::Conf> conf_;
};

std::chrono::steady_clock::time_point deadline() {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
}

json produce(const json &request) {
  Login login(request["login"], {{"compression.type", request["codec"]}});
  Delivery delivery;
  std::string error;
  login.conf()->set("dr_cb", &delivery, error);
  std::unique_ptr<RdKafka::Producer> producer(RdKafka::Producer::create(login.conf(), error));
  if (!producer) throw std::runtime_error(error);
  for (const json &record : request["records"]) {
    std::string key = record[1].is_null() ? "" : decode(record[1]), value = decode(record[2]);
    auto code = producer->produce(request["topic"], record[0], RdKafka::Producer::RK_MSG_COPY, value.data(),
                                  value.size(), record[1].is_null() ? nullptr : key.data(), key.size(), record[4],
                                  nullptr, nullptr);
    if (code != RdKafka::ERR_NO_ERROR) throw std::runtime_error(RdKafka::err2str(code));
  }
  for (auto end = deadline(); delivery.offsets.size() < request["records"].size();) {
    producer->poll(100);
    login.refusals.check();
    if (std::chrono::steady_clock::now() > end) throw std::runtime_error("no acknowledgement");
  }
  if (!delivery.error.empty()) throw std::runtime_error(delivery.error);
  return delivery.offsets;
}

json consume(const json &request) {
  Login login(request["login"], {{"group.id", "none"}, {"enable.auto.commit", "false"}});
  std::string error;
  std::unique_ptr<RdKafka::KafkaConsumer> consumer(RdKafka::KafkaConsumer::create(login.conf(), error));
  if (!consumer) throw std::runtime_error(error);
  std::vector<RdKafka::TopicPartition *> starts;
  size_t count = 0;
  for (const json &start : request["starts"]) {
    starts.push_back(RdKafka::TopicPartition::create(request["topic"], start[0], start[1]));
    count += start[2].get<size_t>();
  }
  consumer->assign(starts);
  RdKafka::TopicPartition::destroy(starts);
  json rows = json::array();
  for (auto end = deadline(); rows.size() < count && std::chrono::steady_clock::now() < end;) {
    std::unique_ptr<RdKafka::Message> message(consumer->consume(100));
    login.refusals.check();
    if (message->err() == RdKafka::ERR__TIMED_OUT) continue;
    if (message->err() != RdKafka::ERR_NO_ERROR) throw std::runtime_error(message->errstr());
    const std::string *key = message->key();
    rows.push_back({message->partition(), message->offset(), message->timestamp().timestamp,
                    key == nullptr ? json(nullptr) : shown(key->data(), key->size()),
                    shown(message->payload(), message->len()), json::array()});
  }
  consumer->close();
  return rows;
}

json answer(const json &request) {
  if (request.contains("login") && request["op"] == "produce") return {{"result", produce(request)}};
  if (request.contains("login") && request["op"] == "consume") return {{"result", consume(request)}};
  return {{"error", "lacking"}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    json reply;
    try {
      reply = answer(json::parse(line));
    } catch (const std::exception &error) {
      reply = {{"error", error.what()}};
    }
    std::cout << reply.dump() << std::endl;
  }
}
