// KafkaJS. Requests and answers are those of tests/clients/python/serving.py.
//
// Its consumer only reads as a member of a group: to read from given offsets is to seek in a group of one's own.
// It knows no incremental changes of settings and no log directories, and cannot write null as a header.
const { createHash } = require('node:crypto')
const { readFileSync } = require('node:fs')
const readline = require('node:readline')
const zstd = require('@bokuweb/zstd-wasm')
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, Partitioners, logLevel } = require('kafkajs')
const SnappyCodec = require('kafkajs-snappy')
const lz4 = require('lz4-napi')

const WAIT_MS = 30000
const FETCH_WAIT_MS = 200
const UNPACKED_BYTES = 16 << 20
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: data => lz4.decompressFrame(data),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async data => Buffer.from(zstd.decompress(data, { defaultHeapSize: UNPACKED_BYTES })),
})

const raw = text => (text === null ? null : Buffer.from(text, 'base64'))

const shown = data => {
  if (data === null || data === undefined) return null
  if (data.length > 1000) return 'sha256:' + createHash('sha256').update(data).digest('hex')
  return data.toString('base64')
}

const rawHeaders = pairs => {
  const headers = {}
  for (const [name, value] of pairs) headers[name] = (headers[name] || []).concat([raw(value)])
  return headers
}

const shownHeaders = headers =>
  Object.entries(headers).flatMap(([name, values]) => [values].flat().map(value => [name, shown(value)]))

const shownRecord = (partition, { offset, timestamp, key, value, headers }) =>
  [partition, Number(offset), Number(timestamp), shown(key), shown(value), shownHeaders(headers)]

const settings = ({ trusted, identity, mechanism, username, password, token }) => {
  const pair = identity && readFileSync(identity)
  const ssl = { ca: readFileSync(trusted), ...(pair && { cert: pair, key: pair }) }
  if (!mechanism) return { ssl }
  const oauthBearerProvider = async () => ({ value: readFileSync(token, 'utf8') })
  return { ssl, sasl: { mechanism: mechanism.toLowerCase(), ...(token ? { oauthBearerProvider } : { username, password }) } }
}

// The offsets, once all have arrived.
const sent = async (producer, topic, records, compression) => {
  const messages = records.map(([partition, key, value, headers, timestamp]) => (
    { partition, key: raw(key), value: raw(value), headers: rawHeaders(headers), timestamp: String(timestamp) }
  ))
  const told = await producer.send({ topic, messages, compression })
  const next = new Map(told.map(({ partition, baseOffset }) => [partition, Number(baseOffset)]))
  return messages.map(({ partition }) => {
    next.set(partition, next.get(partition) + 1)
    return next.get(partition) - 1
  })
}

class Client {
  constructor(bootstrap, login) {
    const retry = { initialRetryTime: 100, retries: login ? 1 : 8 }
    this.kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR, retry, ...(login && settings(login)) })
    this.groups = 0
    this.admin = this.kafka.admin({ retry: { retries: 1 } })
  }

  async connect() {
    await zstd.init()
    await this.admin.connect()
  }

  async produce({ topic, codec, idempotent, records }) {
    const producer = this.kafka.producer({ idempotent, createPartitioner: Partitioners.DefaultPartitioner })
    await producer.connect()
    try {
      return await sent(producer, topic, records, CODECS[codec])
    } finally {
      await producer.disconnect()
    }
  }

  async write_transaction({ topic, id, records, commit }) {
    const settings = { transactionalId: id, idempotent: true, maxInFlightRequests: 1 }
    const producer = this.kafka.producer({ ...settings, createPartitioner: Partitioners.DefaultPartitioner })
    await producer.connect()
    try {
      const transaction = await producer.transaction()
      const offsets = await sent(transaction, topic, records, CODECS.none)
      await (commit ? transaction.commit() : transaction.abort())
      return offsets
    } finally {
      await producer.disconnect()
    }
  }

  async consume({ topic, starts }) {
    const left = new Map(starts.map(([partition, offset, count]) => [partition, { offset, count }]))
    const found = []
    const take = (partition, message) => {
      const start = left.get(partition)
      if (start !== undefined && Number(message.offset) >= start.offset) {
        found.push(shownRecord(partition, message))
        start.offset = Number(message.offset) + 1 // it may be read from before the seek, and then again
        start.count -= 1
        if (start.count === 0) left.delete(partition)
      }
    }
    const seek = member =>
      starts.forEach(([partition, offset]) => member.seek({ topic, partition, offset: String(offset) }))
    this.groups += 1
    await this.read(topic, { groupId: `reader-${process.pid}-${this.groups}` }, () => left.size, take, seek)
    return found
  }

  async read_in_group({ topic, group, count, isolation }) {
    const found = []
    const settings = { groupId: group, readUncommitted: isolation !== 'read_committed' }
    const take = (partition, message) => found.push(shownRecord(partition, message))
    await this.read(topic, settings, () => found.length < count, take)
    return found
  }

  // As a member of a group, as long as more is wanted; what was taken is committed.
  async read(topic, settings, isMoreWanted, take, ready = () => {}) {
    const member = this.kafka.consumer({ ...settings, maxWaitTimeInMs: FETCH_WAIT_MS })
    await member.connect()
    try {
      await member.subscribe({ topics: [topic], fromBeginning: true })
      await new Promise((resolve, reject) => {
        setTimeout(resolve, WAIT_MS).unref()
        member.on(member.events.CRASH, ({ payload }) => reject(payload.error))
        const eachBatch = async ({ batch, resolveOffset, commitOffsetsIfNecessary }) => {
          for (const message of batch.messages) {
            if (!isMoreWanted()) break
            take(batch.partition, message)
            resolveOffset(message.offset)
          }
          await commitOffsetsIfNecessary()
          if (!isMoreWanted()) resolve()
        }
        member.run({ eachBatch, eachBatchAutoResolve: false, autoCommitThreshold: 1 }).then(() => ready(member), reject)
      })
    } finally {
      await member.disconnect()
    }
  }

  async committed_offsets({ group }) {
    const topics = await this.admin.fetchOffsets({ groupId: group })
    const found = topics.flatMap(({ partitions }) => partitions)
    return Object.fromEntries(found.map(({ partition, offset }) => [partition, Number(offset)]))
  }

  async describe_group({ group }) {
    const { groups: [{ state, members }] } = await this.admin.describeGroups([group])
    return [state, members.length]
  }

  async list_groups() {
    const { groups } = await this.admin.listGroups()
    return groups.map(({ groupId }) => groupId)
  }

  async delete_group({ group }) {
    await this.admin.deleteGroups([group])
  }

  async create_topic({ topic, partitions, config }) {
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }))
    const topics = [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }]
    if (!(await this.admin.createTopics({ topics }))) throw new Error('it exists')
  }

  async delete_topic({ topic }) {
    await this.admin.deleteTopics({ topics: [topic] })
  }

  async list_topics() {
    return this.admin.listTopics()
  }

  async describe_topic({ topic }) {
    const { topics: [{ partitions }] } = await this.admin.fetchTopicMetadata({ topics: [topic] })
    return partitions.sort((a, b) => a.partitionId - b.partitionId).map(({ leader }) => leader)
  }

  async describe_config({ topic }) {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic }]
    const { resources: [{ configEntries }] } = await this.admin.describeConfigs({ resources, includeSynonyms: true })
    return Object.fromEntries(configEntries.map(({ configName, configValue }) => [configName, configValue]))
  }

  async set_config({ topic, config }) {
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }))
    await this.admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }] })
  }

  async create_partitions({ topic, total }) {
    await this.admin.createPartitions({ topicPartitions: [{ topic, count: total }] })
  }

  async delete_records({ topic, partition, before }) {
    await this.admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
    const offsets = await this.admin.fetchTopicOffsets(topic)
    return Number(offsets.find(found => found.partition === partition).low)
  }

  async describe_cluster() {
    const { clusterId, controller, brokers } = await this.admin.describeCluster()
    return { cluster: clusterId, controller, brokers: brokers.map(({ nodeId, host, port }) => [nodeId, host, port]) }
  }

  async list_offset({ topic, partition, at }) {
    if (at === 'max') throw new Error('lacking')
    const offsets = typeof at === 'number'
      ? await this.admin.fetchTopicOffsetsByTimestamp(topic, at)
      : await this.admin.fetchTopicOffsets(topic)
    const { low, high, offset } = offsets.find(found => found.partition === partition)
    return Number(at === 'earliest' ? low : at === 'latest' ? high : offset)
  }
}

const main = async () => {
  const client = new Client(process.argv[2])
  await client.connect()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line)
    let answer
    try {
      const served = request.login ? new Client(request.login.bootstrap, request.login) : client
      if (!(request.op in served)) throw new Error('lacking')
      answer = { result: (await served[request.op](request)) ?? null }
    } catch (error) {
      const inner = (error.errors ?? error.partitions ?? []).map(found => found.message ?? found.error.message)
      answer = { error: [error.message, ...inner].join('; ') }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  process.exit(0)
}

main()
