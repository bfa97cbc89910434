import java.util.List;
import org.apache.spark.sql.SparkSession;

/** Reads tables with Spark's own Delta and Iceberg, `select *`. Arguments: delta or iceberg, and a place, in turns. */
public class TableReads {
    public static void main(String[] args) {
        SparkSession spark = SparkSession.builder()
            .master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "localhost")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "1")
            .config("spark.databricks.delta.snapshotPartitions", "1")
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
            .config("spark.sql.catalog.default_iceberg", "org.apache.iceberg.spark.SparkCatalog")
            .config("spark.sql.catalog.default_iceberg.type", "hadoop")
            .config("spark.sql.catalog.default_iceberg.warehouse", System.getProperty("java.io.tmpdir"))
            .getOrCreate();
        spark.sparkContext().setLogLevel("ERROR");
        for (int n = 0; n < args.length; n += 2) {
            List<String> rows = spark.read().format(args[n]).load(args[n + 1]).select("*").toJSON().collectAsList();
            System.out.println("TABLE " + String.join(", ", rows));
        }
        spark.stop();
    }
}
